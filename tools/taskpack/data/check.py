"""A data file against a task: what the trainer will drop, stop at, or cut."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from taskpack.data.check_row import CheckBatch, CheckedBatch, Judged, Limits, judge_batch
from taskpack.data.check_set import SetProblem, judge_set, network_note
from taskpack.data.findings import Finding, Findings
from taskpack.data.images import need_pillow
from taskpack.data.json_rows import RawRow
from taskpack.data.pool import Engine, Ordered, open_pool
from taskpack.data.progress import Meter
from taskpack.data.sources import BYTE_ORDER_MARK, batches, expand_inputs, read_rows
from taskpack.data.tokens import ESTIMATE, text_counter
from taskpack.data.trainer import Columns
from taskpack.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How a check goes."""

    media_root: Path | None = None
    """Folder of the media; None is the profile's `data.dir`."""
    deep: bool = False
    """True decodes every image whole."""
    workers: int | None = None
    """Processes beside this one; None starts some for large inputs."""
    engine: Engine = Engine.LOCAL
    """What runs them."""
    bad_out: Path | None = None
    """Gets every bad row with its findings, one a line."""


@dataclass(slots=True)
class CheckReport:
    """What a check found."""

    rows: int = 0
    found: Findings = field(default_factory=Findings)
    problems: list[SetProblem] = field(default_factory=list)
    """What is wrong with the set, not with one row."""
    notes: list[str] = field(default_factory=list)
    cut_rows: int = 0
    """Good rows whose text is cut to the sequence length."""
    longest: int = 0
    """Tokens of the longest good row, before the cut."""
    exact: bool = False
    """True when the model's own tokenizer counted."""

    @property
    def good(self) -> int:
        """Rows that the trainer trains on."""
        return self.rows - self.found.bad

    def failed(self, max_bad: int = 0) -> bool:
        """Say whether more is wrong than is allowed."""
        return self.found.bad > max_bad or bool(self.problems)

    def to_json(self) -> dict[str, object]:
        """Give the report as plain values; good rows are not in it."""
        return {
            "rows": self.rows,
            "good": self.good,
            "bad": self.found.bad,
            "counts": dict(self.found.counts),
            "findings": [finding.to_json() for finding in self.found.kept],
            "problems": [problem.to_json() for problem in self.problems],
            "notes": self.notes,
            "longest_tokens": self.longest,
            "cut_rows": self.cut_rows,
            "tokens_exact": self.exact,
        }

    def lines(self) -> Iterator[str]:
        """Spell the report for a terminal."""
        yield f"{self.rows} rows, {self.good} good, {self.found.bad} bad"
        for kind, count in sorted(self.found.counts.items()):
            yield f"  {count} {kind}"
            first = [finding for finding in self.found.kept if finding.kind == kind][:3]
            for finding in first:
                place = f"line {finding.line}, byte {finding.byte}: " if finding.line else ""
                yield f"    {place}{finding}"
        for problem in self.problems:
            yield f"  {problem.kind}: {problem.message}"
        tokens = "tokens" if self.exact else f"tokens (estimated: {ESTIMATE})"
        yield f"longest good row: {self.longest} {tokens}; {self.cut_rows} cut in their text"
        yield from self.notes


def limits_of(profile: Profile, checkout: Path, options: CheckOptions) -> Limits:
    """Take what decides about rows from a profile.

    Args:
        profile: The task.
        checkout: Folder from which the launcher starts, and relative paths with it.
        options: How the check goes.
    """
    data, vision = profile.data, profile.architecture.vision
    root = checkout / data.dir if options.media_root is None else options.media_root
    media = data.media
    return Limits(
        columns=Columns(
            images="images" if media == "images" else None,
            videos="videos" if media == "videos" else None,
            system=data.system_tag,
        ),
        folders=(root, checkout),
        seq_length=profile.train.seq_length,
        image_max_pixels=data.image_max_pixels,
        image_min_pixels=data.image_min_pixels,
        pixels_per_side=vision.patch_size * vision.spatial_merge_size,
        hf_dir=checkout / profile.hf.dir,
        deep=options.deep,
    )


def check(
    inputs: Sequence[Path],
    profile: Profile,
    checkout: Path,
    options: CheckOptions,
    *,
    visit: Callable[[Judged], None] = lambda _judged: None,
) -> CheckReport:
    """Judge every row of files; memory grows by nine bytes per row.

    Args:
        inputs: Files or patterns of MindSpeed-MM rows.
        profile: The task that will train on them.
        checkout: Folder from which the launcher starts.
        options: How the check goes.
        visit: Called with every good row.

    Raises:
        DatasetError: A file holds no rows in any form known here.
        HostError: Pillow is missing.
    """
    need_pillow()
    files = expand_inputs(inputs)
    limits = limits_of(profile, checkout, options)
    report = CheckReport(exact=text_counter(limits.hf_dir)[1])
    total = sum(path.stat().st_size for path in files)
    # rows cost a look into their images, however small they are
    pool = open_pool(judge_batch, options.engine, options.workers, total * 16)
    ids, bad = array("Q"), bytearray()
    columns: frozenset[str] = frozenset()
    with ExitStack() as stack:
        bad_out = stack.enter_context(options.bad_out.open("w")) if options.bad_out else None
        meter = stack.enter_context(Meter(total))
        work = _batches(files, limits, meter, texts=pool is not None, with_rows=bad_out is not None)
        for _, result in Ordered(judge_batch, work, pool):
            _take(report, result, bad_out, limits, visit)
            ids.extend(result.ids)
            bad += result.bad
            columns |= result.columns
            meter.add_rows(len(result.ids))
    report.rows = len(ids)
    _find_byte_order_marks(files, bad, report)
    _find_repeats(files, ids, bad, report)
    report.problems = judge_set(profile, report.rows, report.good, columns, limits.columns)
    report.notes = network_note(profile, checkout)
    return report


def _batches(
    files: Sequence[Path], limits: Limits, meter: Meter, *, texts: bool, with_rows: bool
) -> Iterator[CheckBatch]:
    for path in files:
        for rows in batches(read_rows(path, meter, texts=texts)):
            yield CheckBatch(str(path), rows, limits, with_rows)


def _take(
    report: CheckReport,
    result: CheckedBatch,
    bad_out: IO[str] | None,
    limits: Limits,
    visit: Callable[[Judged], None],
) -> None:
    for findings in result.findings:
        report.found.add(findings)
    for findings, value in zip(result.findings, result.values, strict=False):
        if bad_out is not None:
            record = {"findings": [finding.to_json() for finding in findings], "value": value}
            bad_out.write(json.dumps(record, default=str) + "\n")
    for judged in result.measures:
        report.longest = max(report.longest, judged.tokens)
        report.cut_rows += judged.tokens > limits.seq_length
        visit(judged)


def _find_repeats(
    files: Sequence[Path], ids: array[int], bad: bytearray, report: CheckReport
) -> None:
    """Name rows whose id an earlier row has; only digests were kept, so rows are read again."""
    digests = np.frombuffer(ids, dtype=np.uint64) if ids else np.zeros(0, np.uint64)
    order = np.argsort(digests, kind="stable")
    ranked = digests[order]
    same = (ranked[1:] == ranked[:-1]) & (ranked[1:] != 0)
    if not same.any():
        return
    repeats = set(order[1:][same].tolist())
    for number, (path, raw) in enumerate(_all_rows(files)):
        if number in repeats and isinstance(raw.value, dict):
            name = str(raw.value.get("id"))
            text = f"id {name!r} stands on an earlier row too"
            place = (raw.line, raw.byte)
            finding = Finding(raw.number, name, "duplicate_id", text, str(path), *place)
            report.found.add([finding], new_row=not bad[number])


def _all_rows(files: Sequence[Path]) -> Iterator[tuple[Path, RawRow]]:
    for path in files:
        for raw in read_rows(path):
            yield path, raw


def _find_byte_order_marks(files: Sequence[Path], bad: bytearray, report: CheckReport) -> None:
    """A mark at the start of a file stops the trainer's reader, though not ours."""
    starts = 0
    for path in files:
        with path.open("rb") as stream:
            marked = stream.read(3) == BYTE_ORDER_MARK.encode()
        if marked and bad:
            text = "a byte order mark stands before the row; the trainer's reader refuses it"
            report.found.add(
                [Finding(0, None, "bom", text, str(path), 1, 0)], new_row=not bad[starts]
            )
            bad[starts] = 1
        if len(files) > 1:
            starts += sum(1 for _ in read_rows(path, texts=True))
