"""Carry out a plan: read runs, write at known offsets, digest every tensor on the way.

Threads share nothing but file descriptors: each fills its own small buffer with `preadv` and
writes it with `pwrite`. A target's rows are written in order, so its digest and its CRC-32 come
from the same pass. Nothing holds a tensor in memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from taskpack.errors import CheckpointError
from taskpack.weights.casts import cast, is_finite, raw_dtype
from taskpack.weights.dtypes import DTYPES
from taskpack.weights.out_file import OutFile
from taskpack.weights.plan import Job, Target
from taskpack.weights.sink import Sink, WriteBehind, Written
from taskpack.weights.tensors import TensorInfo

BUFFER_BYTES = 1 << 20
TURNED_BYTES = 4 << 20
"""Room for the rows of a transposed target: the more of them, the longer the runs of a source."""
Raw = npt.NDArray[Any]


class Change(Protocol):
    """What a merge does to rows on their way.

    `identity` is a digest of everything that decides the result, so that a run with another
    change is never taken for the same run.
    """

    @property
    def identity(self) -> str:
        """Give the digest."""

    def change(self, target: Target, first: int, rows: Raw, dtype: str) -> Raw:
        """Take a target, the first row and the rows of a chunk; give the rows to write."""


def worker_count(threads: int) -> int:
    """Give a number of threads: as told, or for 0 one more than there are processors, up to 8."""
    return threads or min(8, (os.cpu_count() or 1) + 1)


class Files:
    """Descriptors of the files in use, opened once and shared by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[Path, int], int] = {}

    def fd(self, path: Path, flags: int = os.O_RDONLY) -> int:
        """Open a file, or give the descriptor it already has."""
        with self._lock:
            if (path, flags) not in self._open:
                self._open[path, flags] = os.open(path, flags)
            return self._open[path, flags]

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])


def read_into(fd: int, view: memoryview, offset: int, path: Path) -> None:
    """Fill a buffer from a file.

    Raises:
        CheckpointError: The file ends before; it was cut while it was read.
    """
    while len(view):
        count = os.preadv(fd, [view], offset)
        if count == 0:
            raise CheckpointError(
                f"the file ends at byte {offset}, before its tensors do",
                where=str(path),
                why="it was cut or replaced while it was being read",
                fix="let no other program write it, then run the command again",
            )
        view, offset = view[count:], offset + count


def read_whole(fd: int, info: TensorInfo) -> Raw:
    """Read a small tensor into memory, in its own type.

    Raises:
        CheckpointError: The file ends before.
    """
    buffer = bytearray(info.nbytes)
    read_into(fd, memoryview(buffer), info.offset, info.path)
    return np.frombuffer(buffer, raw_dtype(info.dtype)).reshape(info.shape)


def read_box(fd: int, info: TensorInfo, rows: slice, columns: slice, buffer: memoryview) -> Raw:
    """Read a rectangle of a tensor of two axes into a buffer, row by row where it must be.

    Args:
        fd: Descriptor of its file.
        info: The tensor.
        rows: First row and the one after the last.
        columns: The same of its columns.
        buffer: Room for the rectangle.

    Raises:
        CheckpointError: The file ends before.
    """
    item = np.dtype(f"u{DTYPES[info.dtype].itemsize}")
    height, width = rows.stop - rows.start, columns.stop - columns.start
    view = buffer[: height * width * item.itemsize]
    if width == info.shape[1]:
        read_into(fd, view, info.offset + rows.start * width * item.itemsize, info.path)
    else:
        run = width * item.itemsize
        for index in range(height):
            at = (rows.start + index) * info.shape[1] + columns.start
            part = view[index * run : (index + 1) * run]
            read_into(fd, part, info.offset + at * item.itemsize, info.path)
    return np.frombuffer(view, item).reshape(height, width)


class CopyEngine:
    """Runs jobs into laid out files.

    Args:
        folder: Folder of the output files.
        outs: Output files, by the file name of the target side.
        dtype: Element type to write.
        change: Changes rows on the way, for merges.
        progress: Told the bytes of every chunk written.
        buffer_bytes: What each thread reads and writes at once.
    """

    def __init__(
        self,
        folder: Path,
        outs: Mapping[str, OutFile],
        *,
        dtype: str,
        change: Change | None = None,
        progress: Callable[[int], object] = lambda _count: None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._folder = folder
        self._outs = outs
        self._dtype = dtype
        self._change = change
        self._progress = progress
        self._buffer_bytes = buffer_bytes
        self._local = threading.local()
        self.stop = threading.Event()
        self.files = Files()
        self._behind: dict[str, WriteBehind] = {}

    def run(
        self, jobs: Sequence[Job], done: Callable[[Job, Sequence[Written]], object], *, threads: int
    ) -> None:
        """Run jobs in the order of their bytes on disk; report each in the calling thread."""
        ordered = sorted(jobs, key=self._place)
        with ThreadPoolExecutor(max_workers=threads) as pool:
            futures = {pool.submit(self._run_job, job): job for job in ordered}
            try:
                for future in as_completed(futures):
                    done(futures[future], future.result())
            except BaseException:
                self.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _place(self, job: Job) -> tuple[str, int]:
        stored = job.targets[0].stored
        out = self._outs[stored.file]
        return out.path, out.offsets[stored.key, stored.name]

    def _buffer(self, nbytes: int) -> memoryview:
        have: bytearray | None = getattr(self._local, "buffer", None)
        if have is None or len(have) < nbytes:
            have = self._local.buffer = bytearray(max(nbytes, self._buffer_bytes))
        return memoryview(have)[:nbytes]

    def _run_job(self, job: Job) -> list[Written]:
        sinks = [self._sink(target) for target in job.targets]
        for first, count in self._chunks(job):
            if self.stop.is_set():
                raise InterruptedError("stopped")
            for sink, view in self._fill(job)(job, sinks, first, count):
                sink.write(view)
                self._progress(len(view))
        return [sink.done() for sink in sinks]

    def _sink(self, target: Target) -> Sink:
        out = self._outs[target.stored.file]
        path = self._folder / out.path
        fd = self.files.fd(path, os.O_RDWR)
        behind = self._behind.setdefault(out.path, WriteBehind(fd))
        return Sink(target, out, fd, path, behind)

    def _fill(self, job: Job) -> Callable[..., Iterator[tuple[Sink, memoryview]]]:
        if job.turned:
            return self._fill_turned
        return self._fill_rows if job.axis == 0 else self._fill_band

    def _chunks(self, job: Job) -> Iterator[tuple[int, int]]:
        """Cut the rows of a job (axis 0 in either case) so that a chunk fits the buffer."""
        shape = job.targets[0].stored.shape
        rows = shape[0] if shape else 1
        per_row = sum(prod(t.stored.shape[1:]) for t in job.targets) * self._itemsize(job)
        room = max(self._buffer_bytes, TURNED_BYTES) if job.turned else self._buffer_bytes
        step = max(1, room // max(per_row, 1))
        for first in range(0, rows, step):
            yield first, min(step, rows - first)

    def _itemsize(self, job: Job) -> int:
        return DTYPES[job.sources[0].dtype if job.sources else self._dtype].itemsize

    def _fill_rows(
        self, job: Job, sinks: Sequence[Sink], first: int, count: int
    ) -> Iterator[tuple[Sink, memoryview]]:
        """Gather rows [first, first + count) of the one target from runs of its sources."""
        (sink,) = sinks
        target = sink.target
        row_bytes = prod(target.stored.shape[1:]) * self._itemsize(job)
        view = self._buffer(count * row_bytes)
        filled = 0
        for move in target.moves:
            begin = max(first, move.target_offset)
            end = min(first + count, move.target_offset + move.length)
            if begin >= end:
                continue
            source = job.sources[move.source]
            at = source.offset + (move.source_offset + begin - move.target_offset) * row_bytes
            part = view[(begin - first) * row_bytes : (end - first) * row_bytes]
            read_into(self.files.fd(source.path), part, at, source.path)
            filled += end - begin
        if filled < count:
            _zero_padding(view, target, first, count, row_bytes)
        yield sink, self._finish(job, target, first, view)

    def _fill_band(
        self, job: Job, sinks: Sequence[Sink], first: int, count: int
    ) -> Iterator[tuple[Sink, memoryview]]:
        """Read rows of every source once, then cut the columns of each target from them."""
        item = np.dtype(f"u{self._itemsize(job)}")
        widths = [source.shape[1] for source in job.sources]
        wanted = [sink.target.width for sink in sinks]
        total = count * (sum(widths) + max(wanted)) * item.itemsize
        buffer = self._buffer(total)
        arrays: list[Raw] = []
        at = 0
        for source, width in zip(job.sources, widths, strict=True):
            nbytes = count * width * item.itemsize
            offset = source.offset + first * width * item.itemsize
            read_into(self.files.fd(source.path), buffer[at : at + nbytes], offset, source.path)
            arrays.append(np.frombuffer(buffer[at : at + nbytes], item).reshape(count, width))
            at += nbytes
        for sink in sinks:
            target = sink.target
            view = buffer[at : at + count * target.width * item.itemsize]
            rows = np.frombuffer(view, item).reshape(count, target.width)
            for move in target.moves:
                rows[:, move.target_offset : move.target_offset + move.length] = arrays[
                    move.source
                ][:, move.source_offset : move.source_offset + move.length]
            yield sink, self._finish(job, target, first, view)

    def _fill_turned(
        self, job: Job, sinks: Sequence[Sink], first: int, count: int
    ) -> Iterator[tuple[Sink, memoryview]]:
        """Turn rectangles of the sources into rows [first, first + count) of the one target."""
        (sink,) = sinks
        target = sink.target
        item = np.dtype(f"u{self._itemsize(job)}")
        half = count * target.stored.shape[1] * item.itemsize
        buffer = self._buffer(2 * half)
        rows = np.frombuffer(buffer[:half], item).reshape(count, -1)
        for move in target.moves:
            source = job.sources[move.source]
            fd = self.files.fd(source.path)
            if target.axis == 1:
                along = slice(move.source_offset, move.source_offset + move.length)
                box = read_box(fd, source, along, slice(first, first + count), buffer[half:])
                rows[:, move.target_offset : move.target_offset + move.length] = box.T
                continue
            begin = max(first, move.target_offset)
            end = min(first + count, move.target_offset + move.length)
            if begin < end:
                at = move.source_offset - move.target_offset
                every = slice(0, source.shape[0])
                box = read_box(fd, source, every, slice(at + begin, at + end), buffer[half:])
                rows[begin - first : end - first] = box.T
        yield sink, self._finish(job, target, first, buffer[:half])

    def _finish(self, job: Job, target: Target, first: int, view: memoryview) -> memoryview:
        source = job.sources[0].dtype if job.sources else self._dtype
        if self._change is None and source == self._dtype:
            return view
        rows = np.frombuffer(view, raw_dtype(source))
        rows = rows.reshape(-1, prod(target.stored.shape[1:]))
        if self._change is not None:
            rows = self._change.change(target, first, rows, source)
        written = cast(rows, source, self._dtype)
        if source != self._dtype and not is_finite(written, self._dtype).all():
            self._refuse_overflow(target, first, rows, source)
        return np.ascontiguousarray(written).reshape(-1).view(np.uint8).data

    def _refuse_overflow(self, target: Target, first: int, rows: Raw, source: str) -> None:
        """Refuse a cast that turns numbers into infinity; NaN and infinity themselves may pass."""
        lost = is_finite(rows, source) & ~is_finite(cast(rows, source, self._dtype), self._dtype)
        if lost.any():
            raise CheckpointError(
                f"{target.stored.name} does not fit {self._dtype}: values become infinite",
                where=f"{target.stored.file}, row {first} or one of the {len(rows)} from it on",
                why=f"the largest {source} numbers are beyond the range of {self._dtype}",
                fix="keep the type, or cast to bf16 or fp32",
            )


def _zero_padding(view: memoryview, target: Target, first: int, count: int, row_bytes: int) -> None:
    for piece in target.stored.pieces:
        if piece.tensor:
            continue
        begin = max(first, piece.offset)
        end = min(first + count, piece.offset + piece.stop - piece.start)
        if begin < end:
            nbytes = (end - begin) * row_bytes
            at = (begin - first) * row_bytes
            view[at : at + nbytes] = bytes(nbytes)
