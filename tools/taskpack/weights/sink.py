"""Write the rows of one target tensor at their place in a file, digesting on the way."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import xxhash

from taskpack.weights.checksums import crc32
from taskpack.weights.out_file import OutFile
from taskpack.weights.plan import Target

WRITEBACK_BYTES = 32 << 20
"""After so many bytes of a file the kernel is asked to start writing them to disk; left to itself
it would begin with the fsync at the end of the file."""


@dataclass(frozen=True, slots=True)
class Written:
    """A finished target tensor."""

    file: str
    key: str
    name: str
    digest: str
    crc: int


def write_all(fd: int, view: memoryview | bytes, offset: int, path: Path) -> None:
    """Write a whole buffer at an offset of an open file.

    Raises:
        OSError: The system refuses; it names the path.
    """
    view = memoryview(view)
    while len(view):
        try:
            count = os.pwrite(fd, view, offset)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        view, offset = view[count:], offset + count


class WriteBehind:
    """Has the kernel write a file to disk while the threads go on filling it.

    Threads fill neighbouring tensors, so a range of what they wrote since the last time has few
    gaps. Pages in it that another thread is about to fill are not harmed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._count, self._low, self._high = 0, sys.maxsize, 0

    def wrote(self, begin: int, end: int) -> None:
        """Note bytes that were written, and hand them over when there are enough."""
        with self._lock:
            self._count += end - begin
            self._low, self._high = min(self._low, begin), max(self._high, end)
            if self._count < WRITEBACK_BYTES:
                return
            low, high = self._low, self._high
            self._reset()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, low, high - low, os.POSIX_FADV_DONTNEED)


class Sink:
    """Writes one target in order, digesting as it goes."""

    def __init__(
        self, target: Target, out: OutFile, fd: int, path: Path, behind: WriteBehind
    ) -> None:
        stored = target.stored
        self.target = target
        self.out = out
        self._fd = fd
        self._path = path
        self._behind = behind
        self._at = out.offsets[stored.key, stored.name]
        self._digest = xxhash.xxh3_128()
        self._crc = 0

    def write(self, view: memoryview) -> None:
        """Append rows."""
        self._digest.update(view)
        if self.out.needs_crc:
            self._crc = crc32(view, self._crc)
        write_all(self._fd, view, self._at, self._path)
        self._behind.wrote(self._at, self._at + len(view))
        self._at += len(view)

    def done(self) -> Written:
        """Tell what was written, once the last row is."""
        stored = self.target.stored
        return Written(stored.file, stored.key, stored.name, self._digest.hexdigest(), self._crc)
