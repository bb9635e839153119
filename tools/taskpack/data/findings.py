"""What is wrong with rows: kinds, counts, and the first thousand in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

SHOWN_FINDINGS = 10
KEPT_FINDINGS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one row."""

    row: int
    """Number of the row in its file, from 0."""
    id: str | None
    kind: str
    """One word of the table in tools/README.md: `wrong_type`, `missing_image`, ..."""
    message: str
    file: str = ""
    line: int = 0
    """Line on which the row starts, from 1; 0 where a file has no lines."""
    byte: int = 0
    """Offset at which the row starts."""

    def __str__(self) -> str:
        name = f" (id {self.id})" if self.id is not None else ""
        return f"{self.file} row {self.row}{name}: {self.message}"

    def to_json(self) -> dict[str, object]:
        """Give the finding as plain values."""
        return {
            "row": self.row,
            "id": self.id,
            "kind": self.kind,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "byte": self.byte,
        }


@dataclass(slots=True)
class Findings:
    """All faults counted, the first thousand kept."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    bad_rows: Counter[str] = field(default_factory=Counter)
    """Bad rows, by the first fault of each."""

    def add(self, findings: Iterable[Finding], *, new_row: bool = True) -> None:
        """Take faults of one row; `new_row` is False when others of it were taken before."""
        for number, finding in enumerate(findings):
            if number == 0 and new_row:
                self.bad_rows[finding.kind] += 1
            self.counts[finding.kind] += 1
            if len(self.kept) < KEPT_FINDINGS:
                self.kept.append(finding)

    @property
    def bad(self) -> int:
        """Rows with at least one fault."""
        return sum(self.bad_rows.values())

    def kinds(self) -> str:
        """Count the faults by kind, in one line."""
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))

    def first(self, limit: int = SHOWN_FINDINGS) -> list[str]:
        """Spell the first faults, one a line, and count the rest."""
        shown = [str(finding) for finding in self.kept[:limit]]
        rest = sum(self.counts.values()) - len(shown)
        return [*shown, f"and {rest} more"] if rest else shown
