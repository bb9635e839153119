"""Compare the places that hold the same rows a second time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np

from taskpack.errors import CheckpointError
from taskpack.weights.copy_engine import BUFFER_BYTES, TURNED_BYTES, Files, read_box, read_into
from taskpack.weights.plan import Replica
from taskpack.weights.tensors import TensorInfo


def refuse_differences(replicas: Sequence[Replica], *, threads: int) -> None:
    """Read every replica and its original.

    Raises:
        CheckpointError: Some differ.
    """
    different = differing(replicas, threads=threads)
    if different:
        first = different[0]
        raise CheckpointError(
            f"{len(different)} copies of the same rows differ, first in {first.tensor}",
            where=f"{first.first.path} and {first.second.path}",
            why="replicated tensors must be equal on every rank; the ranks were not in step",
            fix="find which rank is wrong, or use another iteration; a head that was trained apart"
            " from the embedding is kept by --untie",
        )


def differing(replicas: Sequence[Replica], *, threads: int) -> list[Replica]:
    """Read both places of every replica; give those that are not equal byte for byte."""
    with Files() as files, ThreadPoolExecutor(max_workers=threads) as pool:
        equal = list(pool.map(lambda replica: _equal(replica, files), replicas))
    return [replica for replica, same in zip(replicas, equal, strict=True) if not same]


def _equal(replica: Replica, files: Files) -> bool:
    if replica.turned:
        return _equal_turned(replica, files)
    half = BUFFER_BYTES // 2
    runs = list(
        zip(
            _runs(replica.first, replica.first_offset, replica),
            _runs(replica.second, replica.second_offset, replica),
            strict=True,
        )
    )
    buffer = memoryview(bytearray(2 * min(half, max(nbytes for (_, nbytes), _ in runs))))
    size = len(buffer) // 2
    for (first_at, nbytes), (second_at, _) in runs:
        for done in range(0, nbytes, max(size, 1)):
            count = min(size, nbytes - done)
            one, two = buffer[:count], buffer[size : size + count]
            read_into(files.fd(replica.first.path), one, first_at + done, replica.first.path)
            read_into(files.fd(replica.second.path), two, second_at + done, replica.second.path)
            if not np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(two, np.uint8)):
                return False
    return True


def _equal_turned(replica: Replica, files: Files) -> bool:
    """Compare row by row of the second place, in boxes of the first that fit half a buffer."""
    first, second = replica.first, replica.second
    rows = slice(replica.second_offset, replica.second_offset + replica.length)
    columns = slice(0, second.shape[1 - replica.axis])
    if replica.axis == 1:
        rows, columns = columns, rows
    row_bytes = second.row_nbytes(0) // second.shape[1] * (columns.stop - columns.start)
    step = max(1, TURNED_BYTES // max(row_bytes, 1))
    buffer = memoryview(bytearray(2 * min(step, rows.stop - rows.start) * row_bytes))
    shift = replica.first_offset - replica.second_offset
    for at in range(rows.start, rows.stop, step):
        part = slice(at, min(at + step, rows.stop))
        half = (part.stop - part.start) * row_bytes
        two = read_box(files.fd(second.path), second, part, columns, buffer[:half])
        box = (columns, _shifted(part, shift))
        if replica.axis == 1:
            box = (_shifted(columns, shift), part)
        one = read_box(files.fd(first.path), first, *box, buffer[half:])
        if not np.array_equal(one.T, two):
            return False
    return True


def _shifted(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def _runs(info: TensorInfo, offset: int, replica: Replica) -> Iterator[tuple[int, int]]:
    """Yield (position, bytes) of the runs that `length` steps along an axis consist of."""
    step = info.row_nbytes(replica.axis)
    outer = prod(info.shape[: replica.axis])
    for index in range(outer):
        start = index * info.shape[replica.axis] * step if info.shape else 0
        yield info.offset + start + offset * step, replica.length * step
