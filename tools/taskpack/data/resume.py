"""How far a conversion got: enough to go on after it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from taskpack.data.findings import Finding, Findings
from taskpack.data.probe import FileForm
from taskpack.errors import HostError

SAVED_EVERY_ROWS = 16_384
COUNTERS = ("read", "text_only", "with_system", "repaired", "extracted")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The file `OUT.resume.json`, which lies beside the partial files while they grow.

    Args:
        path: The file.
        key: Digest of inputs and options; other ones cannot be gone on with.
    """

    path: Path
    key: str

    def save(self, state: dict[str, Any]) -> None:
        """Write the state; it is whole or not there."""
        fresh = self.path.with_name(self.path.name + ".partial")
        fresh.write_text(json.dumps({"key": self.key, **state}), encoding="utf-8")
        fresh.replace(self.path)

    def load(self) -> dict[str, Any]:
        """Read the state.

        Raises:
            HostError: There is none, or it is of another conversion.
        """
        try:
            state: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise self._unusable("there is no interrupted conversion to go on with") from None
        if state.get("key") != self.key:
            raise self._unusable("the interrupted conversion had other inputs or options")
        return state

    def forget(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _unusable(self, what: str) -> HostError:
        return HostError(
            what,
            where=str(self.path),
            why="--resume appends to the rows that were written; they must be of the same run",
            fix="run the same command without --resume",
        )


def conversion_key(forms: Sequence[FileForm], options: str) -> str:
    """Digest what decides about the output: the files as they are now, and the options."""
    files = []
    for form in forms:
        stat = form.path.stat()
        place = str(form.path.resolve())
        files.append([place, stat.st_size, stat.st_mtime_ns, form.form.value, form.media.value])
    return xxhash.xxh3_64_hexdigest(json.dumps([files, options]).encode())


def findings_state(found: Findings) -> dict[str, Any]:
    """Give findings as plain values."""
    return {
        "kept": [finding.to_json() for finding in found.kept],
        "counts": dict(found.counts),
        "bad_rows": dict(found.bad_rows),
    }


def restore_findings(found: Findings, state: dict[str, Any]) -> None:
    """Take findings from plain values."""
    found.kept += [Finding(**record) for record in state["kept"]]
    found.counts.update(state["counts"])
    found.bad_rows.update(state["bad_rows"])
