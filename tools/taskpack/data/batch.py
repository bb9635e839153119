"""A run of rows converted at once, in this process or another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from taskpack.data.draft import Row
from taskpack.data.findings import Finding
from taskpack.data.json_rows import RawRow, parsed
from taskpack.data.rows import RowReader

BATCH_ROWS = 512
BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one file that follow each other."""

    reader: RowReader
    number: int
    """Number of the first row in the whole conversion."""
    rows: list[RawRow]
    stop_at_damage: bool


@dataclass(slots=True)
class Done:
    """What became of a batch."""

    file: str
    rows: list[tuple[int, bytes]] = field(default_factory=list)
    """Number and JSON of each good row."""
    findings: list[list[Finding]] = field(default_factory=list)
    """Faults of each bad row."""
    repairs: list[str] = field(default_factory=list)
    read: int = 0
    text_only: int = 0
    with_system: int = 0
    extracted: int = 0
    last: RawRow | None = None
    """The last good row."""
    last_id: str = ""
    damage: RawRow | None = None
    """The row that could not be read, when the batch stops there."""


def convert_batch(batch: Batch) -> Done:
    """Convert the rows of a batch."""
    reader = batch.reader
    done = Done(reader.file)
    before = reader.place.extracted.files
    for number, text in enumerate(batch.rows, batch.number):
        raw = parsed(text)
        if raw.fault and batch.stop_at_damage:
            done.damage = raw
            break
        done.read += 1
        _convert(reader, raw, number, done)
    if done.last is not None:
        # the row itself need not travel between processes
        done.last = done.last._replace(value={"id": done.last_id})
    done.extracted = reader.place.extracted.files - before
    return done


def _convert(reader: RowReader, raw: RawRow, number: int, done: Done) -> None:
    row = reader.read(raw, number)
    if not isinstance(row, Row):
        done.findings.append(row)
        return
    try:
        done.rows.append((number, row.encode()))
    except UnicodeEncodeError as error:
        done.findings.append(reader.unwritable(raw, error))
        return
    done.text_only += not row.images and not row.videos
    done.with_system += row.has_system
    done.last, done.last_id = raw, row.id
    if reader.repaired:
        done.repairs.append(f"{reader.file} row {raw.number}: {reader.repaired}")


def batches(rows: Iterable[RawRow]) -> Iterator[list[RawRow]]:
    """Cut rows into batches; one long row makes a batch of its own."""
    held: list[RawRow] = []
    size = 0
    for raw in rows:
        held.append(raw)
        size += len(raw.value) if isinstance(raw.value, str) else BATCH_CHARACTERS // BATCH_ROWS
        if len(held) == BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield held
            held, size = [], 0
    if held:
        yield held
