"""Progress on a terminal as a bar, elsewhere as one line per finished file."""

from __future__ import annotations

import logging
import sys
import time

from taskpack.progress import ByteBar

log = logging.getLogger(__name__)


class Progress(ByteBar):
    """Shows how many of `total` bytes are written."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._started = time.monotonic()

    def file(self, path: str, size: int) -> None:
        """Name a finished file and its bytes, where there is no terminal to show a bar on."""
        if not sys.stderr.isatty():
            seconds = time.monotonic() - self._started
            log.info("%s  (%.1f MiB, after %.1f s)", path, size / 2**20, seconds)
