"""LLaVA files to one MindSpeed-MM file, row by row, whatever their size."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO

from taskpack.data.llava import Finding, Row, RowReader
from taskpack.errors import DatasetError, HostError

SHOWN_FINDINGS = 10
KEPT_FINDINGS = 1000


class OnBad(Enum):
    """What to do about a row that cannot be converted."""

    FAIL = "fail"
    """Read everything, report, write nothing."""
    DROP = "drop"
    """Leave the row out and count it by reason."""
    LIST = "list"
    """Report every bad row one by one, write nothing."""


@dataclass(slots=True)
class Conversion:
    """The account of one conversion: `read == written + dropped` for a file that was written."""

    read: int = 0
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows left out, by the first fault of each."""
    text_only: int = 0
    with_system: int = 0
    """Rows with a system message; the trainer drops them while `data.system_tag` is unset."""
    findings: list[Finding] = field(default_factory=list)
    """The first thousand faults; `counts` has them all."""
    counts: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, object]:
        """Give the account as plain values."""
        return {
            "rows": self.read,
            "written": self.written,
            "dropped": dict(self.dropped),
            "text_only": self.text_only,
            "with_system": self.with_system,
            "counts": dict(self.counts),
            "findings": [
                {"file": f.file, "row": f.row, "id": f.id, "kind": f.kind, "message": f.message}
                for f in self.findings
            ],
        }

    def summary(self) -> str:
        """Account for every row in one line."""
        reasons = ", ".join(f"{count} {kind}" for kind, count in sorted(self.dropped.items()))
        bad = sum(self.dropped.values())
        return (
            f"{self.read} rows read, {self.written} written ({self.text_only} text only, "
            f"{self.with_system} with a system message), {bad} bad{': ' if bad else ''}{reasons}"
        )


def convert_llava(
    inputs: Sequence[Path],
    output: Path,
    *,
    media_root: Path | None = None,
    on_bad: OnBad = OnBad.FAIL,
    overwrite: bool = False,
    report: Callable[[Finding], None] = lambda _finding: None,
) -> Conversion:
    """Write the rows of LLaVA files as one MindSpeed-MM file; memory does not grow with them.

    Args:
        inputs: JSON files, each an array of rows, converted in this order.
        output: The file to write; it appears only when it is complete.
        media_root: Folder of the images; by default the folder of each input.
        on_bad: What a bad row does.
        overwrite: Replace an output that is already there.
        report: Called with every fault as it is found.

    Raises:
        DatasetError: A file is unreadable, or a row is bad and `on_bad` is FAIL.
        HostError: The output is already there.
    """
    _check_paths(inputs, output, overwrite=overwrite)
    account = Conversion()
    partial = output.with_name(output.name + ".partial")
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("w", encoding="utf-8") as stream:
            rows = _good_rows(inputs, media_root, account, report)
            _write_array(stream, rows, account)
        if on_bad is OnBad.FAIL and account.counts:
            raise _bad_rows(account)
        if on_bad is not OnBad.LIST:
            if not account.written:
                raise _nothing_left(account, inputs)
            partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return account


def _check_paths(inputs: Sequence[Path], output: Path, *, overwrite: bool) -> None:
    if any(output.resolve() == path.resolve() for path in inputs):
        raise HostError(
            f"{output} is both input and output",
            where=str(output),
            why="rows are read while others are written",
            fix="name another output file",
        )
    if output.exists() and not overwrite:
        raise HostError(
            f"{output} is already there",
            where=str(output),
            why="a data file is never replaced without being asked",
            fix="name another file, or add --overwrite",
        )


def _good_rows(
    inputs: Sequence[Path],
    media_root: Path | None,
    account: Conversion,
    report: Callable[[Finding], None],
) -> Iterator[Row]:
    for path in inputs:
        reader = RowReader(str(path), media_root or path.parent)
        for number, value in enumerate(iterate_array(path)):
            account.read += 1
            row = reader.read(number, value)
            if isinstance(row, Row):
                yield row
                continue
            account.dropped[row[0].kind] += 1
            for finding in row:
                account.counts[finding.kind] += 1
                report(finding)
                if len(account.findings) < KEPT_FINDINGS:
                    account.findings.append(finding)


def iterate_array(path: Path) -> Iterator[object]:
    """Yield the elements of a JSON array without reading the whole file.

    Raises:
        DatasetError: The file is absent, not JSON, or not an array.
        HostError: The reader is not installed.
    """
    try:
        import ijson
    except ModuleNotFoundError:
        raise HostError(
            "this Python has no ijson",
            where=sys.executable,
            why="it reads rows one by one, so that memory does not grow with the file",
            fix="pip install 'taskpack[data]'",
        ) from None
    if not path.is_file():
        raise DatasetError(
            f"there is no file {path}",
            where=str(path),
            why="it was named as input",
            fix="check the path; it is relative to the current folder",
        )
    try:
        with path.open("rb") as stream:
            _require_array(path, stream)
            yield from ijson.items(stream, "item", use_float=True)
    except ijson.JSONError as error:
        raise DatasetError(
            f"{path.name} is not valid JSON: {error}",
            where=str(path),
            why="the trainer reads strict JSON; a file that was cut off ends like this",
            fix="write the file again, as one array of rows",
        ) from error


def _require_array(path: Path, stream: IO[bytes]) -> None:
    head = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] != b"[":
        raise DatasetError(
            f"{path.name} starts with {head[:1].decode(errors='replace')!r}, not with '['",
            where=str(path),
            why="a LLaVA file is one JSON array of rows",
            fix="wrap the rows in [ and ], separated by commas",
        )
    stream.seek(3 if stream.seek(0) == 0 and stream.read(3) == b"\xef\xbb\xbf" else 0)


def _write_array(stream: IO[str], rows: Iterator[Row], account: Conversion) -> None:
    stream.write("[")
    for row in rows:
        stream.write(",\n" if account.written else "\n")
        stream.write(json.dumps(row.to_json(), ensure_ascii=False))
        account.written += 1
        account.text_only += not row.images
        account.with_system += row.messages[0]["role"] == "system"
    stream.write("\n]\n")


def _bad_rows(account: Conversion) -> DatasetError:
    shown = [str(finding) for finding in account.findings[:SHOWN_FINDINGS]]
    rest = sum(account.counts.values()) - len(shown)
    if rest:
        shown.append(f"and {rest} more")
    bad = sum(account.dropped.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(account.counts.items()))
    return DatasetError(
        f"{bad} of {account.read} rows cannot be converted ({kinds})",
        where="\n         ".join(shown),
        why="the trainer stops at such a row, or drops it silently",
        fix="correct them, or leave them out: --on-bad drop (--on-bad list shows them all)",
    )


def _nothing_left(account: Conversion, inputs: Sequence[Path]) -> DatasetError:
    return DatasetError(
        f"none of {account.read} rows can be used",
        where=", ".join(map(str, inputs)),
        why="a data file without rows cannot be trained on",
        fix="see what is wrong with them: --on-bad list",
    )
