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
from itertools import islice
from typing import Generic, TypeVar

from taskpack.errors import HostError

MOST_WORKERS = 4
"""Without being asked; one process reads and writes for all, and more would wait for it."""
WORTH_BYTES = 32 << 20
"""Smaller inputs are done sooner than processes start."""
_WAITING_PER_WORKER = 3

Item = TypeVar("Item")
Result = TypeVar("Result")


def choose_workers(asked: int | None, input_bytes: int) -> int:
    """Choose how many processes to start; 0 does the work in this one."""
    if asked is not None:
        return asked
    return min(MOST_WORKERS, os.cpu_count() or 1) if input_bytes >= WORTH_BYTES else 0


class Ordered(Generic[Item, Result]):
    """Items and their results, in order; a bounded number of items is on its way.

    Args:
        work: What is done with each.
        items: Asked for the next item whenever there is room, also after it had none.
        workers: Processes to start; 0 does the work in this one.
    """

    def __init__(self, work: Callable[[Item], Result], items: Iterator[Item], workers: int) -> None:
        self._work = work
        self._items = items
        self._workers = workers
        self._waiting: deque[tuple[Item, Future[Result]]] = deque()

    def __iter__(self) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result.

        Raises:
            HostError: A process was killed, usually for want of memory.
        """
        if self._workers == 0:
            yield from ((item, self._work(item)) for item in self._items)
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_start_worker)
        most = self._workers * _WAITING_PER_WORKER
        try:
            while True:
                room = max(0, most - len(self._waiting))
                for item in islice(self._items, room):
                    self._waiting.append((item, pool.submit(self._work, item)))
                if not self._waiting:
                    return
                item, future = self._waiting.popleft()
                yield item, future.result()
        except BrokenProcessPool:
            raise HostError(
                "a worker process was killed",
                where="this host",
                why="the system kills processes when it runs out of memory",
                fix="use fewer: --workers 1, or 0 for none",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)

    def take_back(self) -> list[Item]:
        """Give up the results that were not yielded yet, and return their items."""
        items = [item for item, _ in self._waiting]
        for _, future in self._waiting:
            future.cancel()
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
