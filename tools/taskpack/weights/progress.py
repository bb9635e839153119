"""Progress on a terminal as a bar, elsewhere as one line per finished file."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from tqdm import tqdm

log = logging.getLogger(__name__)


class Progress:
    """Shows how many of `total` bytes are written."""

    def __init__(self, total: int) -> None:
        self._bar = tqdm(
            total=total, unit="B", unit_scale=True, unit_divisor=1024, disable=None, leave=False
        )
        self._started = time.monotonic()
        self._done = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Count bytes written; any thread may call it."""
        self._done += count
        self._bar.update(count)

    def file(self, path: str) -> None:
        """Name a finished file, where there is no terminal to show a bar on."""
        if not sys.stderr.isatty():
            seconds = time.monotonic() - self._started
            log.info("%s  (%.1f s, %.2f GiB written)", path, seconds, self._done / 2**30)
