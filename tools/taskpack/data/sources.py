"""Input files of any container: JSON array, JSON lines, parquet, and gzip of the first two."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from taskpack.data.json_rows import RawRow, array_rows, line_rows
from taskpack.data.parquet_rows import parquet_rows
from taskpack.data.progress import Meter
from taskpack.data.text_window import TextWindow
from taskpack.errors import DatasetError, TaskpackError, raise_collected

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
BYTE_ORDER_MARK = "\ufeff"


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
    if not path.is_file():
        raise _absent(path)
    with path.open("rb") as stream:
        head = stream.read(4)
    if head == _PARQUET:
        yield from parquet_rows(path, meter)
        return
    with _opened(path, meter, zipped=head.startswith(_GZIP)) as stream:
        window = TextWindow(cast("IO[bytes]", stream))
        try:
            yield from _json_rows(path, window, texts=texts)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DatasetError(
                f"{path.name} is not whole: {error}",
                where=f"{path} after byte {window.byte} of its content",
                why="a gzip file that was cut off or damaged ends like this",
                fix="copy or pack the file again",
            ) from None


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


@contextmanager
def _opened(path: Path, meter: Meter | None, *, zipped: bool) -> Iterator[io.IOBase]:
    with path.open("rb") as stream:
        metered = _Metered(stream, meter)
        if zipped:
            with gzip.GzipFile(fileobj=cast("IO[bytes]", metered)) as unzipped:
                yield unzipped
        else:
            yield metered


def _absent(path: Path) -> DatasetError:
    return DatasetError(
        f"there is no file {path}",
        where=str(path),
        why="it was named as input",
        fix="check the path; it is relative to the current folder",
    )
