"""Work spread over processes, results in the order of the work, never much of it in memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from taskpack.errors import HostError

MOST_WORKERS = 4
"""Without being asked; one process reads and writes for all, and more would wait for it."""
WORTH_BYTES = 32 << 20
"""Smaller inputs are done sooner than processes start."""
_WAITING_PER_WORKER = 3

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Enum):
    """What runs the work on rows."""

    LOCAL = "local"
    """Processes on this machine."""
    RAY = "ray"
    """The Ray cluster that RAY_ADDRESS names, or one started on this machine."""


class Handle(Protocol):
    """A result to come."""

    def result(self) -> Any:
        """Wait for it."""

    def cancel(self) -> object:
        """Do without it."""


class Pool(Protocol):
    """Workers, wherever they are."""

    size: int

    def submit(self, item: Any) -> Handle:
        """Start the work on an item."""

    def close(self) -> None:
        """End the workers."""


def choose_workers(asked: int | None, input_bytes: int) -> int:
    """Choose how many processes to start; 0 does the work in this one."""
    if asked is not None:
        return asked
    return min(MOST_WORKERS, os.cpu_count() or 1) if input_bytes >= WORTH_BYTES else 0


def open_pool(
    work: Callable[[Any], Any], engine: Engine, asked: int | None, input_bytes: int
) -> Pool | None:
    """Start workers; None where this process had better do the work.

    Args:
        work: What is done with each item.
        engine: What runs it.
        asked: Number of workers; None chooses.
        input_bytes: Size of all the work.

    Raises:
        HostError: Ray is not installed, or its cluster cannot be reached.
    """
    if engine is Engine.RAY:
        from taskpack.data.ray_pool import RayPool

        return RayPool(work, asked)
    count = choose_workers(asked, input_bytes)
    return LocalPool(work, count) if count else None


class LocalPool:
    """Processes on this machine."""

    def __init__(self, work: Callable[[Any], Any], size: int) -> None:
        self.size = size
        self._work = work
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(size, mp_context=context, initializer=_start_worker)

    def submit(self, item: Any) -> Handle:
        """Start the work on an item."""
        return _LocalHandle(self._executor.submit(self._work, item))

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _LocalHandle:
    future: Future[Any]

    def result(self) -> Any:
        try:
            return self.future.result()
        except BrokenProcessPool:
            raise HostError(
                "a worker process was killed",
                where="this host",
                why="the system kills processes when it runs out of memory",
                fix="use fewer: --workers 1, or 0 for none",
            ) from None

    def cancel(self) -> object:
        return self.future.cancel()


class Ordered(Generic[Item, Result]):
    """Items and their results, in order; a bounded number of items is on its way.

    Args:
        work: What is done with each.
        items: Asked for the next item whenever there is room, also after it had none.
        pool: Workers that do it; None does it in this process.
    """

    def __init__(
        self, work: Callable[[Item], Result], items: Iterator[Item], pool: Pool | None
    ) -> None:
        self._work = work
        self._items = items
        self._pool = pool
        self._waiting: deque[tuple[Item, Handle]] = deque()

    def __iter__(self) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result, and end the workers behind the last.

        Raises:
            HostError: A worker was lost, usually for want of memory.
        """
        if self._pool is None:
            yield from ((item, self._work(item)) for item in self._items)
            return
        most = self._pool.size * _WAITING_PER_WORKER
        try:
            while True:
                for item in islice(self._items, max(0, most - len(self._waiting))):
                    self._waiting.append((item, self._pool.submit(item)))
                if not self._waiting:
                    return
                item, handle = self._waiting.popleft()
                yield item, handle.result()
        finally:
            self._pool.close()

    def take_back(self) -> list[Item]:
        """Give up the results that were not yielded yet, and return their items."""
        items = [item for item, _ in self._waiting]
        for _, handle in self._waiting:
            handle.cancel()
        self._waiting.clear()
        return items


def _start_worker() -> None:
    """Only the parent answers Ctrl-C; it ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the search for cycles: rows are trees, and looking through them costs a quarter."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
