"""The file of rows that a conversion writes: grown beside its name, in any order."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import xxhash

LINE_SUFFIXES = (".jsonl", ".ndjson")


def has_lines(path: Path) -> bool:
    """True for a name that says one row a line, False for an array."""
    return path.suffix in LINE_SUFFIXES


def draw(number: int, seed: int) -> int:
    """Draw 64 bits for a row; the same on every host, whatever else is read."""
    return xxhash.xxh3_64_intdigest(number.to_bytes(8, "little"), seed)


class RowFile:
    """One output file; `NAME.partial` until it is renamed.

    Args:
        path: The final name.
        shuffle_seed: Writes the rows in an order drawn by this seed; None keeps theirs.
        resumed: Rows and bytes of a partial file to go on with.
    """

    def __init__(
        self,
        path: Path,
        shuffle_seed: int | None = None,
        resumed: tuple[int, int] | None = None,
    ) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.rows = 0
        self._seed = shuffle_seed
        self._ends = array("Q")
        self._end = 0
        self._loose = path.with_name(path.name + ".unsorted.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        target = self.partial if shuffle_seed is None else self._loose
        self._stream: IO[bytes] = target.open("wb" if resumed is None else "r+b")
        if resumed is not None:
            self.rows = resumed[0]
            self._stream.seek(resumed[1])
            self._stream.truncate()
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
            with self._loose.open("rb") as loose, self.partial.open("wb") as stream:
                self._write(stream, self._shuffled(loose))
            return
        if not self.rows:
            self._stream.write(self._open)
        self._stream.write(self._close if self.rows or not has_lines(self.path) else b"")
        self._stream.close()

    def rename(self) -> None:
        """Give the finished file its name."""
        self.partial.replace(self.path)

    def discard(self) -> None:
        """Remove what was not renamed."""
        self._stream.close()
        self.partial.unlink(missing_ok=True)
        self._loose.unlink(missing_ok=True)

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
