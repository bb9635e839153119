"""Files of rows in any known format to one MindSpeed-MM file, row by row, whatever their size."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from taskpack.data.batch import Done, convert_batch
from taskpack.data.draft import named
from taskpack.data.feed import Feed
from taskpack.data.findings import Finding, Findings
from taskpack.data.formats import Format
from taskpack.data.media import Extracted, MediaPlace
from taskpack.data.outputs import Outputs, check_outputs, output_paths
from taskpack.data.pool import Engine, Ordered, open_pool, without_collector
from taskpack.data.probe import FileForm, probe_files
from taskpack.data.progress import Meter
from taskpack.data.resume import (
    COUNTERS,
    SAVED_EVERY_ROWS,
    ResumePoint,
    conversion_key,
    findings_state,
    restore_findings,
)
from taskpack.data.rows import Media, RowReader
from taskpack.data.sources import Pieces, broken, expand_inputs, read_rows
from taskpack.errors import DatasetError, ProfileError, TaskpackError


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
    workers: int | None = None
    """Processes beside this one; None starts some for large inputs."""
    engine: Engine = Engine.LOCAL
    """What runs them."""
    resume: bool = False
    """True goes on with an interrupted conversion of the same inputs and options."""
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
        HostError: The output is already there, or there is nothing to resume.
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
    run = _Run(options, account, extracted, report, tell, _resume_point(output, forms, options))
    outputs = run.open_outputs(paths)
    try:
        run.write(forms, outputs)
        outputs.finish()
        if options.on_bad is OnBad.FAIL and account.found.bad:
            raise _bad_rows(account)
        if options.on_bad is not OnBad.LIST:
            if not outputs.rows:
                raise _nothing_left(account, files)
            outputs.rename(extracted)
            account.written, account.outputs = outputs.rows, outputs.counts
    except TaskpackError:
        run.clean_up(outputs)
        raise
    except BaseException:
        outputs.close()  # what is there can be gone on with
        raise
    run.clean_up(outputs)
    return account


def _resume_point(output: Path, forms: Sequence[FileForm], options: ConvertOptions) -> ResumePoint:
    if options.resume and options.shuffle:
        raise ProfileError(
            "--resume cannot go on with --shuffle",
            where="--resume --shuffle",
            why="the order is drawn over all rows, at the end",
            fix="leave one of them out",
        )
    same = replace(options, overwrite=False, resume=False, workers=None, engine=Engine.LOCAL)
    return ResumePoint(
        output.with_name(output.name + ".resume.json"), conversion_key(forms, repr(same))
    )


@dataclass(slots=True)
class _Run:
    options: ConvertOptions
    account: Conversion
    extracted: Extracted
    report: Report
    tell: Tell
    point: ResumePoint
    done_rows: int = 0
    """Rows of the input that an interrupted run has dealt with."""

    def open_outputs(self, paths: Sequence[Path]) -> Outputs:
        """Start the outputs, or go on with those of an interrupted run."""
        options, account = self.options, self.account
        state = self.point.load() if options.resume else None
        resumed = None if state is None else [(rows, size) for rows, size in state["files"]]
        outputs = Outputs(
            paths, options.split, options.seed, shuffle=options.shuffle, resumed=resumed
        )
        if state is None:
            shutil.rmtree(self.extracted.partial, ignore_errors=True)
        else:
            for name in COUNTERS:
                setattr(account, name, state[name])
            restore_findings(account.found, state["found"])
            self.done_rows = account.read
        return outputs

    def clean_up(self, outputs: Outputs) -> None:
        """Remove all that was not renamed."""
        outputs.discard()
        self.point.forget()
        shutil.rmtree(self.extracted.partial, ignore_errors=True)

    def _save_point(self, outputs: Outputs) -> None:
        state = {name: getattr(self.account, name) for name in COUNTERS}
        found = findings_state(self.account.found)
        self.point.save({**state, "files": outputs.flush(), "found": found})

    def write(self, forms: Sequence[FileForm], outputs: Outputs) -> None:
        """Send every good row to its output."""
        total = sum(form.path.stat().st_size for form in forms)
        pool = open_pool(convert_batch, self.options.engine, self.options.workers, total)
        last = None
        saved = self.done_rows
        resumable = not self.options.shuffle and self.options.on_bad is not OnBad.LIST
        with Meter(total) as meter, without_collector():
            feed = self._feed(forms, meter, texts=pool is not None)
            ordered = Ordered(convert_batch, feed, pool)
            for batch, done in ordered:
                if done.cut_wrongly:
                    feed.reject(batch, ordered.take_back())
                    continue
                feed.place(batch, done)
                self._take(done, outputs, feed.row - done.read)
                last = done.last or last
                if done.damage:
                    raise broken(done.file, done.damage, last)
                meter.add_rows(done.read)
                if resumable and self.account.read - saved >= SAVED_EVERY_ROWS:
                    self._save_point(outputs)
                    saved = self.account.read

    def _feed(self, forms: Sequence[FileForm], meter: Meter, *, texts: bool) -> Feed:
        start, stop = self._bounds(forms)
        pieces = [Pieces(form.path, meter, texts=texts) for form in forms]
        readers = [self._reader(form) for form in forms]
        return Feed(
            pieces,
            readers,
            start + self.done_rows,
            stop,
            stop_at_damage=self.options.on_bad is OnBad.FAIL,
        )

    def _take(self, done: Done, outputs: Outputs, first: int) -> None:
        account = self.account
        for number, row in zip(done.numbers, done.rows, strict=True):
            whole = named(first + number, row) if number in done.nameless else row
            outputs.add(whole, first + number)
        for findings in done.findings:
            account.found.add(findings)
            for finding in findings:
                self.report(finding)
        for number, repair in done.repairs:
            self.tell(f"{done.file} row {number}: {repair}")
        account.read += done.read
        account.text_only += done.text_only
        account.with_system += done.with_system
        account.repaired += len(done.repairs)
        account.extracted += done.extracted

    def _bounds(self, forms: Sequence[FileForm]) -> tuple[int, int | None]:
        limit, shard = self.options.max_samples, self.options.shard
        if shard is None:
            return 0, limit
        total = sum(1 for form in forms for _ in read_rows(form.path, texts=True))
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
