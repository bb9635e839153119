"""Lines of a log of any size, in constant memory."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from taskpack.errors import HostError

BLOCK = 256 * 1024
_LONGEST = 8192
"""Characters of a line that are looked at."""

_GZIP = b"\x1f\x8b"
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What kubectl, srun or a launcher of several nodes put in front, then the rank as torch and
# torchrun write it. Levels in brackets belong to the text.
_PREFIX = re.compile(
    r"(?:20\d\d-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) )?"
    r"(?P<tag>\d{1,4}: |\[(?!(?:rank|default)\d|ERROR|WARN|INFO|DEBUG|EVENT|TRACE)[\w.:-]+\] )?"
    r"(?:\[(?:rank|default)(?P<rank>\d+)\]:?(?: |$))?"
)
_TIME = re.compile(r"(20\d\d)[-/](\d\d)[-/](\d\d)[-T _](\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, without its prefix."""

    number: int
    """From 1."""

    text: str
    """With its indentation."""

    tag: str
    """Node that a launcher put in front; empty without."""

    rank: int | None
    """Rank that torch or torchrun put in front."""


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """Open a log, also a compressed one.

    Raises:
        HostError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if packed:
                with gzip.open(file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except (OSError, EOFError) as error:
        raise HostError(
            f"the log cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            why="explain reads text or gzip",
            fix="name a log of a run: logs/TASK_*.log in the checkout",
        ) from error


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Cut a file into blocks of whole lines; a line longer than a block is cut."""
    rest = b""
    while chunk := file.read(BLOCK):
        chunk = rest + chunk
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(chunk) >= BLOCK:
            end = len(chunk)
        if end:
            yield chunk[:end]
        rest = chunk[end:]
    if rest:
        yield rest


def split_lines(block: bytes, first: int) -> Iterator[LogLine]:
    """Split a block; what a progress bar overwrote counts as lines of one number."""
    for number, raw in enumerate(block.rstrip(b"\n").split(b"\n"), start=first):
        for part in raw.rstrip(b"\r").split(b"\r"):
            text = _COLOURS.sub("", part[:_LONGEST].decode("utf-8", "replace"))
            prefix = _PREFIX.match(text)
            assert prefix is not None  # all of it is optional
            rank = prefix["rank"]
            yield LogLine(
                number, text[prefix.end() :], prefix["tag"] or "", int(rank) if rank else None
            )


def find_time(text: str) -> str | None:
    """Find a time in a line, spelled so that times sort: `2026-01-02 03:04:05`."""
    match = _TIME.search(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = match.groups()
    return f"{year}-{month}-{day} {hour}:{minute}:{second}"


def last_time(block: bytes) -> str | None:
    """Find the last time in the end of a block."""
    found = None
    for line in block[-4096:].decode("utf-8", "replace").splitlines():
        found = find_time(line) or found
    return found
