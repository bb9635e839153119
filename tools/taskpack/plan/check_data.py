"""Data files against the batch: enough rows, the columns that data.json names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from taskpack.data.check import CheckOptions, limits_of
from taskpack.data.check_set import judge_set
from taskpack.data.json_rows import RawRow
from taskpack.data.sources import broken, read_rows
from taskpack.errors import TaskpackError
from taskpack.plan.findings import Check, failed
from taskpack.profile import Profile

_DATA = "data"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the data files, and which of the columns that data.json names some row has."""

    count: int
    columns: frozenset[str]


def check_data(profile: Profile, files: Sequence[Path]) -> tuple[list[Check], Rows | None]:
    """Count the rows of files and hold them against the profile.

    Returns:
        The checks, and the rows unless a file cannot be read.
    """
    columns = limits_of(profile, Path(), CheckOptions()).columns
    named = [name for name in (columns.messages, columns.images, columns.videos) if name]
    try:
        rows = _read(files, named)
    except TaskpackError as error:
        return failed(_DATA, error), None
    place = ", ".join(map(str, files))
    problems = judge_set(profile, rows.count, rows.count, rows.columns, columns)
    found = [
        Check(
            _DATA,
            "fail",
            problem.message,
            where=place,
            why="the trainer reads the rows only after the NPUs are taken",
            fix=_FIXES[problem.kind],
        )
        for problem in problems
    ]
    if not found:
        fill = f"{profile.batch.micro * profile.dp:,} fill a micro batch of every copy"
        found.append(Check(_DATA, "pass", f"{rows.count:,} rows; {fill}", where=place))
    return [*found, *_epochs(profile, rows, place)], rows


_FIXES = {
    "too_few_rows": "give more rows, or lower batch.micro",
    "max_samples": "use max_samples: null, or a number of rows that are there",
    "missing_column": "set data.media to what the rows hold, or convert the rows: "
    "taskpack data convert",
}


def used_rows(profile: Profile, rows: Rows) -> int:
    """Count the rows that training reads."""
    limit = profile.data.max_samples
    return rows.count if limit is None else min(rows.count, limit)


def _epochs(profile: Profile, rows: Rows, place: str) -> Iterator[Check]:
    read, used = profile.train.iters * profile.global_batch, used_rows(profile, rows)
    if profile.data.max_samples is not None and used < rows.count:
        yield Check(
            _DATA,
            "note",
            f"data.max_samples reads {used:,} of {rows.count:,} rows",
            where=place,
            why="a value left from a trial cuts training short without a word",
            fix="use max_samples: null for all rows",
        )
    if used > 0 and read < used:
        yield Check(
            _DATA,
            "note",
            f"{profile.train.iters:,} steps of {profile.global_batch:,} see {read / used:.0%} of "
            f"{used:,} rows",
            where=place,
            why="the rest is never read",
            fix=f"use train.iters {-(-used // profile.global_batch)} for one pass over all rows",
        )


def _read(files: Sequence[Path], names: Sequence[str]) -> Rows:
    count, found, last = 0, set[str](), None
    for path in files:
        for raw in read_rows(path, texts=True):
            if raw.fault:
                raise broken(path, raw, last)
            count, last = count + 1, raw
            found.update(name for name in names if name not in found and _may_have(raw, name))
    return Rows(count, frozenset(found))


def _may_have(raw: RawRow, name: str) -> bool:
    """Tell whether a row may have a key; one that its unparsed text lacks is surely absent."""
    if isinstance(raw.value, str):
        return f'"{name}"' in raw.value
    return isinstance(raw.value, dict) and name in raw.value
