"""Input files of any container: JSON array, JSON lines, parquet, and gzip of the first two."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from taskpack.data.array_chunks import Chunk, Rest, array_chunks, rest_from
from taskpack.data.json_rows import RawRow, array_rows, line_rows
from taskpack.data.parquet_rows import parquet_rows
from taskpack.data.progress import Meter
from taskpack.data.text_window import TextWindow
from taskpack.errors import DatasetError, TaskpackError, raise_collected

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
BYTE_ORDER_MARK = "\ufeff"
BATCH_ROWS = 512
BATCH_CHARACTERS = 1 << 20


def expand_inputs(names: Sequence[Path]) -> list[Path]:
    """Resolve patterns, in sorted order, and check that every file is there.

    Raises:
        DatasetError: A name matches no file; all such names are reported.
    """
    files: list[Path] = []
    errors: list[TaskpackError] = []
    for name in names:
        found = [name] if name.is_file() else _matches(name)
        found = [path for path in found if path.is_file()]
        if not found:
            errors.append(_absent(name))
        files += found
    raise_collected(errors)
    return files


def _matches(pattern: Path) -> list[Path]:
    return sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


def read_rows(path: Path, meter: Meter | None = None, *, texts: bool = False) -> Iterator[RawRow]:
    """Yield the rows of a file without reading the whole of it; damage is a row with a `fault`.

    Args:
        path: The file; what it is, is seen from its first bytes.
        meter: Told how many bytes of the file are read.
        texts: True yields rows of JSON unparsed.

    Raises:
        DatasetError: The file is absent, or holds no rows in any form known here.
    """
    if _head(path) == _PARQUET:
        yield from parquet_rows(path, meter)
        return
    with _opened(path, meter) as stream:
        window = TextWindow(stream)
        with _whole(path, lambda: window.byte):
            yield from _json_rows(path, window, texts=texts)


class Pieces:
    """The rows of a file in pieces to convert one by one, wherever.

    Args:
        path: The file; what it is, is seen from its first bytes.
        meter: Told how many bytes of the file are read.
        texts: True gives rows of JSON unparsed.
    """

    def __init__(self, path: Path, meter: Meter | None = None, *, texts: bool = False) -> None:
        self.path = path
        self._meter = meter
        self._texts = texts
        self._distrusted = False

    def __iter__(self) -> Iterator[list[RawRow] | Chunk]:
        """Cut an array into chunks, and give rows where that cannot be done.

        Raises:
            DatasetError: As for `read_rows`.
        """
        if _head(self.path) == _PARQUET:
            yield from batches(parquet_rows(self.path, self._meter))
            return
        last: Chunk | Rest | None = None
        with (
            _opened(self.path, self._meter) as stream,
            _whole(self.path, lambda: last.byte if last else 0),
        ):
            for last in array_chunks(stream):
                if isinstance(last, Rest):
                    yield from batches(self._rows(last))
                    return
                yield last
                if self._distrusted:
                    return

    def rows(self) -> Iterator[RawRow]:
        """Give all rows one by one, as `read_rows`."""
        return read_rows(self.path, self._meter, texts=self._texts)

    def from_start_of(self, chunk: Chunk) -> Iterator[list[RawRow]]:
        """Give the rows from a chunk on that was cut wrongly; the cutting ends."""
        self._distrusted = True
        with _opened(self.path, None) as stream, _whole(self.path, lambda: chunk.byte):
            yield from batches(self._rows(rest_from(stream, chunk)))

    def _rows(self, rest: Rest) -> Iterator[RawRow]:
        if rest.inside:
            return array_rows(rest.window, texts=self._texts, inside=True)
        return _json_rows(self.path, rest.window, texts=self._texts)


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


def read_values(path: Path) -> Iterator[object]:
    """Yield the rows of a file that must be whole.

    Raises:
        DatasetError: As for `read_rows`, or a row cannot be read.
    """
    last = None
    for raw in read_rows(path):
        if raw.fault:
            raise broken(path, raw, last)
        yield raw.value
        last = raw


def broken(path: Path | str, raw: RawRow, last: RawRow | None) -> DatasetError:
    """Say where a file is damaged, and which row before it is good."""
    before = "no row before it is good"
    if last is not None:
        name = last.value.get("id") if isinstance(last.value, dict) else None
        before = f"the last good row is {last.number}" + (f" (id {name})" if name else "")
    return DatasetError(
        f"{Path(path).name} is not valid JSON: {raw.fault}",
        where=f"{path} line {raw.line}, row {raw.number} at byte {raw.byte}; {before}",
        why="the trainer reads strict JSON; a file that was cut off ends like this",
        fix="write the file again, or save what is readable: data convert --on-bad drop",
    )


def _json_rows(path: Path, window: TextWindow, *, texts: bool) -> Iterator[RawRow]:
    window.read()
    if window.text.encode("utf-8", "surrogateescape").startswith(_UTF16):
        raise DatasetError(
            f"{path.name} is UTF-16",
            where=str(path),
            why="JSON is UTF-8 for the trainer",
            fix=f"iconv -f UTF-16 -t UTF-8 {path}",
        )
    if window.text.startswith(BYTE_ORDER_MARK):
        window.at = 1
    first = window.skip_space()
    if first == "[":
        yield from array_rows(window, texts=texts)
    elif first == "{":
        yield from line_rows(window, texts=texts)
    else:
        raise DatasetError(
            f"{path.name} starts with {first!r}, neither with '[' nor with '{{'",
            where=str(path),
            why="rows are one JSON array, JSON lines, or parquet; JSON may be packed with gzip",
            fix="check that this is the file of rows",
        )


class _Metered(io.RawIOBase):
    """A file that tells the meter what was read of it."""

    def __init__(self, stream: IO[bytes], meter: Meter | None) -> None:
        self._stream = stream
        self._meter = meter

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        if self._meter is not None:
            self._meter.add_bytes(len(data))
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)


def _head(path: Path) -> bytes:
    if not path.is_file():
        raise _absent(path)
    with path.open("rb") as stream:
        return stream.read(4)


@contextmanager
def _opened(path: Path, meter: Meter | None) -> Iterator[IO[bytes]]:
    zipped = _head(path).startswith(_GZIP)
    with path.open("rb") as stream:
        metered = cast("IO[bytes]", _Metered(stream, meter))
        if zipped:
            with gzip.GzipFile(fileobj=metered) as unzipped:
                yield cast("IO[bytes]", unzipped)
        else:
            yield metered


@contextmanager
def _whole(path: Path, at: Callable[[], int]) -> Iterator[None]:
    """Say of a damaged gzip file where it is damaged."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(
            f"{path.name} is not whole: {error}",
            where=f"{path} after byte {at()} of its content",
            why="a gzip file that was cut off or damaged ends like this",
            fix="copy or pack the file again",
        ) from None


def _absent(path: Path) -> DatasetError:
    return DatasetError(
        f"there is no file {path}",
        where=str(path),
        why="it was named as input",
        fix="check the path; it is relative to the current folder",
    )
