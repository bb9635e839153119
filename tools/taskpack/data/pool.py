"""Work spread over processes, results in the order of the work, never much of it in memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

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


def run_ordered(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield `work(item)` of each item, in order.

    Raises:
        HostError: A process was killed, usually for want of memory.
    """
    if workers == 0:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > workers * _WAITING_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise HostError(
            "a worker process was killed",
            where="this host",
            why="the system kills processes when it runs out of memory",
            fix="use fewer: --workers 1, or 0 for none",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


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
