"""The rows of all files of a conversion, in batches to convert one by one, wherever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from taskpack.data.array_chunks import Chunk
from taskpack.data.batch import Batch, Done
from taskpack.data.json_rows import RawRow
from taskpack.data.rows import RowReader
from taskpack.data.sources import Pieces, batches


class Feed:
    """Batches of all files, one after the other.

    Args:
        pieces: The files.
        readers: What reads the rows of each.
        start: Number of the first row to read.
        stop: Number behind the last, None for all.
        stop_at_damage: What the batches are told.
    """

    def __init__(
        self,
        pieces: Sequence[Pieces],
        readers: Sequence[RowReader],
        start: int,
        stop: int | None,
        *,
        stop_at_damage: bool,
    ) -> None:
        self._pieces = pieces
        self._readers = readers
        self._stop_at_damage = stop_at_damage
        self._batches = self._all() if (start, stop) == (0, None) else self._some(start, stop)
        self.row = start
        """Number of the row behind the last placed batch, in the whole conversion."""
        self._file = -1
        self._row_of_file = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)

    def place(self, batch: Batch, done: Done) -> None:
        """Count the rows of a batch that is done; called in order."""
        if batch.file != self._file:
            self._file = batch.file
            # rows that were skipped are counted by those who skipped them
            self._row_of_file = done.origin
        done.place(self._row_of_file)
        self._row_of_file += done.read
        self.row += done.read

    def reject(self, batch: Batch, later: Sequence[Batch]) -> None:
        """Read row by row from a wrongly cut chunk on.

        Args:
            batch: The chunk's; all before it is placed.
            later: What was given out behind it, and is not placed.
        """
        assert isinstance(batch.rows, Chunk)
        anew = self._pieces[batch.file].from_start_of(batch.rows)
        kept = [other for other in later if other.file != batch.file]
        self._batches = chain((self._batch(batch.file, rows) for rows in anew), kept, self._batches)

    def _batch(self, file: int, rows: list[RawRow] | Chunk) -> Batch:
        return Batch(self._readers[file], file, rows, self._stop_at_damage)

    def _all(self) -> Iterator[Batch]:
        for file, pieces in enumerate(self._pieces):
            for rows in pieces:
                yield self._batch(file, rows)

    def _some(self, start: int, stop: int | None) -> Iterator[Batch]:
        """Read row by row: only then it is known which row is which."""
        first = 0
        for file, pieces in enumerate(self._pieces):
            seen = 0
            rows = islice(pieces.rows(), None if stop is None else max(stop - first, 0))
            for held in batches(rows):
                wanted = held[max(start - first - seen, 0) :]
                seen += len(held)
                if wanted:
                    yield self._batch(file, wanted)
            first += seen
            if stop is not None and first >= stop:
                return
