"""The file of rows that a conversion writes: grown beside its name, in any order."""

from __future__ import annotations

import fcntl
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import xxhash

from taskpack.errors import HostError

LINE_SUFFIXES = (".jsonl", ".ndjson")


def has_lines(path: Path) -> bool:
    """True for a name that says one row a line, False for an array."""
    return path.suffix in LINE_SUFFIXES


def draw(number: int, seed: int) -> int:
    """Draw 64 bits for a row; the same on every host, whatever else is read."""
    return xxhash.xxh3_64_intdigest(number.to_bytes(8, "little"), seed)


def _held(partial: Path) -> IO[bytes]:
    """Open a partial file, unless another run has it."""
    stream = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # the other run may have given it its final name since it was opened
        if not partial.exists() or not os.path.samestat(os.fstat(stream.fileno()), partial.stat()):
            raise BlockingIOError
    except BlockingIOError:
        stream.close()
        raise HostError(
            f"another run is writing {partial.name.removesuffix('.partial')}",
            where=str(partial),
            why="two runs would mix their rows",
            fix="wait for it to end, or name another output file",
        ) from None
    return stream


def _cut_short(partial: Path) -> HostError:
    return HostError(
        f"{partial.name} holds less than was written",
        where=str(partial),
        why="--resume appends to the rows that were written",
        fix="run the same command without --resume",
    )


class RowFile:
    """One output file; `NAME.partial` until it is renamed.

    Args:
        path: The final name.
        shuffle_seed: Writes the rows in an order drawn by this seed; None keeps theirs.
        resumed: Rows and bytes of a partial file to go on with.

    Raises:
        HostError: Another run is writing the same file, or less is there than is to go on with.
    """

    def __init__(
        self,
        path: Path,
        shuffle_seed: int | None = None,
        resumed: tuple[int, int] | None = None,
    ) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self._seed = shuffle_seed
        self._ends = array("Q")
        self._end = 0
        self._loose = path.with_name(path.name + ".unsorted.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._held = _held(self.partial)
        self.rows, size = resumed or (0, 0)
        if os.fstat(self._held.fileno()).st_size < size:
            self._held.close()
            raise _cut_short(self.partial)
        self._held.seek(size)
        self._held.truncate()
        self._stream = self._held if shuffle_seed is None else self._loose.open("wb")
        self._open, self._between, self._close = (
            (b"", b"\n", b"\n") if has_lines(path) else (b"[\n", b",\n", b"\n]\n")
        )

    def add(self, row: bytes) -> None:
        """Write one row."""
        if self._seed is None:
            self._stream.write(self._between if self.rows else self._open)
        else:
            self._end += len(row)
            self._ends.append(self._end)
        self._stream.write(row)
        self.rows += 1

    def flush(self) -> tuple[int, int]:
        """Hand all rows to the system; return how many they are, and their bytes."""
        self._stream.flush()
        return self.rows, self._stream.tell()

    def finish(self) -> None:
        """Bring the rows into their order and end the file; it still has to be renamed."""
        if self._seed is not None:
            self._stream.close()
            with self._loose.open("rb") as loose:
                self._write(self._held, self._shuffled(loose))
        else:
            if not self.rows:
                self._stream.write(self._open)
            self._stream.write(self._close if self.rows or not has_lines(self.path) else b"")
        self._held.flush()

    def rename(self) -> None:
        """Give the finished file its name; from then on others may write a new one."""
        self.partial.replace(self.path)
        self._loose.unlink(missing_ok=True)
        self._held.close()

    def close(self) -> None:
        """Leave the file as it is."""
        self._stream.close()
        self._held.close()

    def discard(self) -> None:
        """Remove what was not renamed."""
        if self._held.closed:
            return
        self._stream.close()
        self._loose.unlink(missing_ok=True)
        self.partial.unlink(missing_ok=True)
        self._held.close()

    def _write(self, stream: IO[bytes], rows: Iterable[bytes]) -> None:
        stream.write(self._open)
        for number, row in enumerate(rows):
            stream.write(self._between if number else b"")
            stream.write(row)
        stream.write(self._close)

    def _shuffled(self, loose: IO[bytes]) -> Iterator[bytes]:
        ends = np.frombuffer(self._ends, dtype=np.uint64) if self.rows else np.zeros(0, np.uint64)
        keys = np.fromiter(
            (draw(number, self._seed or 0) for number in range(self.rows)),
            dtype=np.uint64,
            count=self.rows,
        )
        for number in np.argsort(keys, kind="stable"):
            start = int(ends[number - 1]) if number else 0
            loose.seek(start)
            yield loose.read(int(ends[number]) - start)


def merge_folder(partial: Path, folder: Path) -> None:
    """Move finished files to their folder, beside whatever else is there; names with a dot stay."""
    for path in sorted(partial.rglob("[!.]*")):
        if path.is_file():
            target = folder / path.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    shutil.rmtree(partial)
