"""Files of rows in any known format to one MindSpeed-MM file, row by row, whatever their size."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from taskpack.data.draft import Row
from taskpack.data.findings import Finding, Findings
from taskpack.data.formats import Format
from taskpack.data.json_rows import RawRow
from taskpack.data.media import Extracted, MediaPlace
from taskpack.data.outputs import Outputs, check_outputs, output_paths
from taskpack.data.probe import FileForm, probe_files
from taskpack.data.progress import Meter
from taskpack.data.rows import Media, RowReader
from taskpack.data.sources import broken, expand_inputs, read_rows
from taskpack.errors import DatasetError


class OnBad(Enum):
    """What to do about a row that cannot be converted."""

    FAIL = "fail"
    """Read everything, report, write nothing."""
    DROP = "drop"
    """Leave the row out and count it by reason."""
    LIST = "list"
    """Report every bad row one by one, write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """How a conversion goes."""

    form: Format | None = None
    """Format of the rows; None finds it out per file."""
    media: Media | None = None
    """Kind of media; None takes that of the first row that has any."""
    media_root: Path | None = None
    """Folder of the media; None is the folder of each input."""
    relative_to: Path | None = None
    """Folder that paths in the output start from; None is the media root."""
    max_samples: int | None = None
    """Rows to read; None reads all."""
    split: tuple[float, ...] = ()
    """Shares of the rows that go to train, val and test."""
    shuffle: bool = False
    """True writes the rows in an order drawn by `seed`."""
    seed: int = 42
    """Start of every random draw."""
    on_bad: OnBad = OnBad.FAIL
    """What a bad row does."""
    fix: bool = False
    """True repairs markers where only one way is right."""
    shard: tuple[int, int] | None = None
    """Convert only the i-th (from 0) of n runs of rows."""
    overwrite: bool = False
    """True replaces an output that is already there."""


@dataclass(slots=True)
class Conversion:
    """The account of one conversion: `read == written + bad` for a file that was written."""

    read: int = 0
    text_only: int = 0
    with_system: int = 0
    """Rows with a system message; the trainer drops them while `data.system_tag` is unset."""
    written: int = 0
    repaired: int = 0
    extracted: int = 0
    """Images that rows carried in themselves, now files."""
    forms: list[FileForm] = field(default_factory=list)
    found: Findings = field(default_factory=Findings)
    outputs: dict[str, int] = field(default_factory=dict)
    """Rows of each output file."""

    def to_json(self) -> dict[str, object]:
        """Give the account as plain values."""
        return {
            "rows": self.read,
            "written": self.written,
            "dropped": dict(self.found.bad_rows),
            "text_only": self.text_only,
            "with_system": self.with_system,
            "repaired": self.repaired,
            "extracted": self.extracted,
            "formats": {str(form.path): form.form.value for form in self.forms},
            "outputs": self.outputs,
            "counts": dict(self.found.counts),
            "findings": [finding.to_json() for finding in self.found.kept],
        }

    def summary(self) -> str:
        """Account for every row in one line."""
        bad_rows = sorted(self.found.bad_rows.items())
        reasons = ", ".join(f"{count} {kind}" for kind, count in bad_rows)
        bad = self.found.bad
        more = f", {self.repaired} repaired" if self.repaired else ""
        more += f", {self.extracted} images extracted" if self.extracted else ""
        return (
            f"{self.read} rows read, {self.written} written ({self.text_only} text only, "
            f"{self.with_system} with a system message), {bad} bad{': ' if bad else ''}"
            f"{reasons}{more}"
        )


Report = Callable[[Finding], None]
Tell = Callable[[str], None]


def convert(
    inputs: Sequence[Path],
    output: Path,
    options: ConvertOptions,
    *,
    report: Report = lambda _finding: None,
    tell: Tell = lambda _line: None,
) -> Conversion:
    """Write the rows of files as MindSpeed-MM rows; memory does not grow with them.

    Args:
        inputs: Files or patterns, converted in this order.
        output: The file to write, lines for `.jsonl`; it appears only when it is complete.
        options: How.
        report: Called with every fault as it is found.
        tell: Called with every repair and with what each file was taken for.

    Raises:
        DatasetError: A file is unreadable, or a row is bad and `on_bad` is FAIL.
        HostError: The output is already there.
        ProfileError: Options contradict each other.
    """
    files = expand_inputs(inputs)
    paths = output_paths(output, options.split, options.shard)
    check_outputs(files, paths, overwrite=options.overwrite)
    forms = probe_files(files, options.form, options.media)
    if options.form is None:
        for form in forms:
            tell(str(form))
    account = Conversion(forms=forms)
    extracted = Extracted(
        output.with_name(output.stem + "_media"), dry=options.on_bad is OnBad.LIST
    )
    outputs = Outputs(paths, options.split, options.seed, shuffle=options.shuffle)
    try:
        _Run(options, account, extracted, report, tell).write(forms, outputs)
        outputs.finish()
        if options.on_bad is OnBad.FAIL and account.found.bad:
            raise _bad_rows(account)
        if options.on_bad is not OnBad.LIST:
            if not outputs.rows:
                raise _nothing_left(account, files)
            outputs.rename(extracted)
            account.written, account.outputs = outputs.rows, outputs.counts
    finally:
        outputs.discard()
        shutil.rmtree(extracted.partial, ignore_errors=True)
    account.extracted = extracted.files
    return account


@dataclass(slots=True)
class _Run:
    options: ConvertOptions
    account: Conversion
    extracted: Extracted
    report: Report
    tell: Tell

    def write(self, forms: Sequence[FileForm], outputs: Outputs) -> None:
        """Send every good row to its output."""
        start, stop = self._bounds(forms)
        number = 0
        with Meter(sum(form.path.stat().st_size for form in forms)) as meter:
            for form in forms:
                reader = self._reader(form)
                last = None
                for raw in read_rows(form.path, meter):
                    if stop is not None and number >= stop:
                        return
                    if number >= start:
                        if raw.fault and self.options.on_bad is OnBad.FAIL:
                            raise broken(form.path, raw, last)
                        meter.add_rows(1)
                        self._convert(reader, raw, number, outputs)
                    number += 1
                    last = raw

    def _convert(self, reader: RowReader, raw: RawRow, number: int, outputs: Outputs) -> None:
        account = self.account
        account.read += 1
        row = reader.read(raw, number)
        if isinstance(row, Row):
            try:
                outputs.add(row.encode(), number)
            except UnicodeEncodeError as error:
                row = reader.unwritable(raw, error)
            else:
                account.text_only += not row.images and not row.videos
                account.with_system += row.has_system
                if reader.repaired:
                    account.repaired += 1
                    self.tell(f"{reader.file} row {raw.number}: {reader.repaired}")
                return
        account.found.add(row)
        for finding in row:
            self.report(finding)

    def _bounds(self, forms: Sequence[FileForm]) -> tuple[int, int | None]:
        limit, shard = self.options.max_samples, self.options.shard
        if shard is None:
            return 0, limit
        total = sum(1 for form in forms for _ in read_rows(form.path))
        total = total if limit is None else min(total, limit)
        part, parts = shard
        return total * part // parts, total * (part + 1) // parts

    def _reader(self, form: FileForm) -> RowReader:
        root = self.options.media_root or form.path.parent
        place = MediaPlace(root, self.options.relative_to or root, self.extracted)
        return RowReader(str(form.path), form.form, place, form.media, self.options.fix)


def convert_llava(
    inputs: Sequence[Path],
    output: Path,
    *,
    media_root: Path | None = None,
    on_bad: OnBad = OnBad.FAIL,
    overwrite: bool = False,
) -> Conversion:
    """Convert LLaVA files; see `convert`."""
    options = ConvertOptions(
        form=Format.LLAVA, media_root=media_root, on_bad=on_bad, overwrite=overwrite
    )
    return convert(inputs, output, options)


def _bad_rows(account: Conversion) -> DatasetError:
    found = account.found
    return DatasetError(
        f"{found.bad} of {account.read} rows cannot be converted ({found.kinds()})",
        where="; ".join(found.first()),
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
