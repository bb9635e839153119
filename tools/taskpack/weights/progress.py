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
        self._bar.update(count)

    def file(self, path: str, size: int) -> None:
        """Name a finished file and its bytes, where there is no terminal to show a bar on."""
        if not sys.stderr.isatty():
            seconds = time.monotonic() - self._started
            log.info("%s  (%.1f MiB, after %.1f s)", path, size / 2**20, seconds)
