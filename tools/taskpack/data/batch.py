"""A run of rows converted at once, in this process or another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from taskpack.data.array_chunks import Chunk
from taskpack.data.draft import Row
from taskpack.data.fast_json import loads
from taskpack.data.findings import Finding
from taskpack.data.json_rows import RawRow, array_rows, parsed
from taskpack.data.rows import RowReader


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one file that follow each other."""

    reader: RowReader
    file: int
    """Number of the file among the inputs."""
    rows: list[RawRow] | Chunk
    stop_at_damage: bool


@dataclass(slots=True)
class Done:
    """What became of a batch. Rows are counted from its first one until `place` is called."""

    file: str
    origin: int = 0
    """What the first row's number is counted from in findings."""
    rows: list[bytes] = field(default_factory=list)
    """JSON of each good row, without its head where it has no name."""
    numbers: list[int] = field(default_factory=list)
    """The number of each of them in the batch."""
    nameless: set[int] = field(default_factory=set)
    """Numbers of those that have no name."""
    findings: list[list[Finding]] = field(default_factory=list)
    """Faults of each bad row."""
    repairs: list[tuple[int, str]] = field(default_factory=list)
    """Number of a row, and what was repaired in it."""
    read: int = 0
    text_only: int = 0
    with_system: int = 0
    extracted: int = 0
    last: RawRow | None = None
    """The last good row, of which only the id is kept."""
    damage: RawRow | None = None
    """The row that could not be read, when the batch stops there."""
    cut_wrongly: bool = False
    """True when the chunk is no list of rows: nothing of it counts."""

    def place(self, first: int) -> None:
        """Count rows in findings from the start of the file.

        Args:
            first: Number of the batch's first row in its file.
        """
        shift = first - self.origin
        if shift == 0:
            return
        self.origin = first
        self.findings = [
            [replace(finding, row=finding.row + shift) for finding in findings]
            for findings in self.findings
        ]
        self.repairs = [(number + shift, text) for number, text in self.repairs]
        self.last = self.last and self.last._replace(number=self.last.number + shift)
        self.damage = self.damage and self.damage._replace(number=self.damage.number + shift)


def convert_batch(batch: Batch) -> Done:
    """Convert the rows of a batch."""
    reader = batch.reader
    if not isinstance(batch.rows, Chunk):
        return _convert_rows(reader, batch.rows, stop_at_damage=batch.stop_at_damage)
    before = reader.place.extracted.files
    done = _convert_sound(reader, batch.rows)
    if done is not None:
        return done
    reader.place.extracted.files = before
    rows = list(array_rows(batch.rows.window()))
    if any(raw.fault for raw in rows):
        return Done(reader.file, cut_wrongly=True)
    return _convert_rows(reader, rows, stop_at_damage=batch.stop_at_damage)


def _convert_sound(reader: RowReader, chunk: Chunk) -> Done | None:
    """Convert a chunk in which every row is good; None when one is not."""
    try:
        values = loads(chunk.array)
    except (ValueError, RecursionError):
        return None
    rows = (RawRow(number, value, 0, 0) for number, value in enumerate(values))
    done = _convert_rows(reader, rows, stop_at_damage=False)
    return None if done.findings else done


def _convert_rows(reader: RowReader, rows: Iterable[RawRow], *, stop_at_damage: bool) -> Done:
    done = Done(reader.file)
    before = reader.place.extracted.files
    for number, text in enumerate(rows):
        if number == 0:
            done.origin = text.number
        raw = _quickly_parsed(text) if text.unparsed else text
        if raw.fault and stop_at_damage:
            done.damage = raw
            break
        done.read += 1
        extracted = reader.place.extracted.files
        if not _keep(reader, raw, number, done):
            reader.place.extracted.files = extracted
            _reread(reader, text, number, done)
    if done.last is not None and isinstance(done.last.value, dict):
        # the row itself need not travel between processes
        done.last = done.last._replace(value={"id": done.last.value.get("id")})
    done.extracted = reader.place.extracted.files - before
    return done


def _quickly_parsed(raw: RawRow) -> RawRow:
    try:
        return raw._replace(value=loads(str(raw.value)), unparsed=False)
    except (ValueError, RecursionError):
        return parsed(raw)


def _keep(reader: RowReader, raw: RawRow, number: int, done: Done) -> bool:
    """Keep a good row; False for any other."""
    row = reader.read(raw)
    if not isinstance(row, Row):
        return False
    try:
        done.rows.append(row.encode())
    except UnicodeEncodeError:
        return False
    done.numbers.append(number)
    if row.id is None:
        done.nameless.add(number)
    done.text_only += not row.images and not row.videos
    done.with_system += row.turns[0][0] == "system"
    done.last = raw
    if reader.repaired:
        done.repairs.append((raw.number, reader.repaired))
    return True


def _reread(reader: RowReader, text: RawRow, number: int, done: Done) -> None:
    """Read a row that looked bad as the parser of the standard library sees it."""
    raw = parsed(text)
    extracted = reader.place.extracted.files
    if text.unparsed and _keep(reader, raw, number, done):
        return
    reader.place.extracted.files = extracted
    row = reader.read(raw)
    if isinstance(row, Row):
        try:
            row.encode()
        except UnicodeEncodeError as error:
            row = reader.unwritable(raw, error)
    assert isinstance(row, list)
    done.findings.append(row)
