"""The files of a conversion: which there are, which row goes where."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from taskpack.data.media import Extracted
from taskpack.data.row_file import RowFile, draw, has_lines, merge_folder
from taskpack.errors import DatasetError, HostError, ProfileError, TaskpackError, raise_collected

SPLIT_NAMES = ("train", "val", "test")


def output_paths(output: Path, split: Sequence[float], shard: tuple[int, int] | None) -> list[Path]:
    """Name the files: OUT itself, or `OUT_train`, `OUT_val` and `OUT_test`.

    Raises:
        ProfileError: Shares do not add up, or a shard is asked for that could not be joined.
    """
    if shard is not None and not has_lines(output):
        raise ProfileError(
            f"--shard writes lines, and {output.name} would be an array",
            where="--shard",
            why="the shards are joined by cat, which cannot join arrays",
            fix=f"name it {output.stem}.jsonl",
        )
    if not split:
        return [output]
    if len(split) > len(SPLIT_NAMES) or min(split) <= 0 or abs(sum(split) - 1) > 1e-6:
        raise ProfileError(
            f"--split {','.join(map(str, split))} does not share out all rows",
            where="--split",
            why="it is two or three positive shares (train, val, test) that add up to 1",
            fix="--split 0.98,0.02",
        )
    names = SPLIT_NAMES[: len(split)]
    return [output.with_name(f"{output.stem}_{name}{output.suffix}") for name in names]


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse to write over an input, or over a file without being asked.

    Raises:
        HostError: One of the outputs must not be written.
    """
    sources = {path.resolve() for path in inputs}
    errors: list[TaskpackError] = []
    for output in outputs:
        if output.resolve() in sources:
            errors.append(
                HostError(
                    f"{output} is both input and output",
                    where=str(output),
                    why="rows are read while others are written",
                    fix="name another output file",
                )
            )
        elif output.exists() and not overwrite:
            errors.append(already_there(output))
    raise_collected(errors)


def already_there(output: Path) -> HostError:
    """Say that an output exists."""
    return HostError(
        f"{output} is already there",
        where=str(output),
        why="a data file is never replaced without being asked",
        fix="name another file, or add --overwrite",
    )


class Outputs:
    """One file, or one per share of the rows.

    Args:
        paths: The files.
        split: The share of each; empty for one file.
        seed: Start of the draws.
        shuffle: Write the rows in an order drawn by the seed.
        resumed: What `flush` gave, to go on with; None starts anew.

    Raises:
        HostError: Another run is writing one of the files, or there is too little to go on with.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        split: Sequence[float],
        seed: int,
        *,
        shuffle: bool,
        resumed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        order = seed if shuffle else None
        starts: Sequence[tuple[int, int] | None] = resumed or [None] * len(paths)
        self._files: list[RowFile] = []
        try:
            for path, start in zip(paths, starts, strict=True):
                self._files.append(RowFile(path, order, start))
        except HostError:
            if resumed is None:
                self.discard()
            raise
        self._bounds = [int(bound * 2**64) for bound in accumulate(split)][:-1]
        # another stream than the shuffle's, or the order would follow the share
        self._seed = seed + 1

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self._files)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each file."""
        return {str(file.path): file.rows for file in self._files}

    def add(self, row: bytes, number: int) -> None:
        """Write a row to the file that its number draws."""
        share = bisect_right(self._bounds, draw(number, self._seed)) if self._bounds else 0
        self._files[share].add(row)

    def flush(self) -> list[tuple[int, int]]:
        """Hand all rows to the system; return rows and bytes of each file."""
        return [file.flush() for file in self._files]

    def finish(self) -> None:
        """End every file."""
        for file in self._files:
            file.finish()

    def rename(self, extracted: Extracted) -> None:
        """Give all files and the folder of extracted images their names.

        Raises:
            DatasetError: A share got no row.
        """
        empty = [file.path.name for file in self._files if not file.rows]
        if empty:
            raise DatasetError(
                f"no row fell to {', '.join(empty)}",
                where="--split",
                why=f"each of {self.rows} rows is drawn alone, and the share is small",
                fix="give it a larger share, or try another --seed",
            )
        if extracted.partial.exists():
            merge_folder(extracted.partial, extracted.folder)
        for file in self._files:
            file.rename()

    def close(self) -> None:
        """Leave every file as it is."""
        for file in self._files:
            file.close()

    def discard(self) -> None:
        """Remove what was not renamed."""
        for file in self._files:
            file.discard()
