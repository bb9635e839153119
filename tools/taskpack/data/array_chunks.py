"""An array cut into chunks of whole rows without parsing it, for other processes to parse.

A cut is a guess: behind a comma between two objects, where the second starts with the key that the
first row starts with. Whoever parses the chunk proves it. What stands between a true cut and the
next one is a list of whole elements exactly if `[` + chunk + `]` is valid JSON, and then the next
cut is a true one as well. A chunk that does not parse is damaged or was cut wrongly, and everything
from its start on is read row by row.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, NamedTuple, cast

from taskpack.data.text_window import TextWindow

CHUNK_BYTES = 1 << 20
CHUNK_LIMIT = 16 << 20
"""Bytes without a cut, after which no more are searched for."""

_HEAD_BYTES = 4096
_ARRAY = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*\[[ \t\r\n]*\{[ \t\r\n]*("[^"\\]{1,200}")')
_BETWEEN_ROWS = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*\Z")
_BETWEEN_BYTES = 256
"""White space that is expected between two rows, at most."""


class Chunk(NamedTuple):
    """Bytes from behind one cut to the next: elements, each with its comma."""

    text: bytes
    byte: int
    """Offset of the first in the file."""
    line: int

    @property
    def array(self) -> bytes:
        """The elements as an array of their own."""
        return b"[" + self.text[:-1] + b"]"

    def window(self) -> TextWindow:
        """Stand in front of that array; positions are those in the file."""
        return TextWindow(io.BytesIO(self.array), byte=self.byte - 1, line=self.line)


class Rest(NamedTuple):
    """The end of an array, which is to be read row by row."""

    window: TextWindow
    inside: bool
    """True behind a comma of the array, False in front of all."""

    @property
    def byte(self) -> int:
        """Offset in the file up to which rows were read."""
        return self.window.byte


def array_chunks(stream: IO[bytes]) -> Iterator[Chunk | Rest]:
    """Cut an array into chunks; the last item is what is left, all of it where nothing can be cut.

    Args:
        stream: The file, from its start.
    """
    held = _read(stream, _HEAD_BYTES)
    match = _ARRAY.match(held)
    if match is None:
        yield Rest(TextWindow(_joined(held, stream)), inside=False)
        return
    key = match[1]
    byte = held.index(b"[") + 1
    line = 1 + held.count(b"\n", 0, byte)
    held = held[byte:]
    while len(held) < CHUNK_LIMIT:
        more = stream.read(CHUNK_BYTES)
        if not more:
            break
        fresh = max(0, len(held) - len(key) - _BETWEEN_BYTES)
        held += more
        cut = _last_cut(held, key, fresh)
        if cut:
            chunk = Chunk(held[:cut], byte, line)
            yield chunk
            byte, line = byte + cut, line + chunk.text.count(b"\n")
            held = held[cut:]
    yield Rest(TextWindow(_joined(held, stream), byte=byte, line=line), inside=True)


def rest_from(stream: IO[bytes], chunk: Chunk) -> Rest:
    """Read row by row from the start of a chunk on.

    Args:
        stream: The file, from its start.
        chunk: One whose start is a true cut.
    """
    stream.seek(chunk.byte)
    return Rest(TextWindow(stream, byte=chunk.byte, line=chunk.line), inside=True)


def _read(stream: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count and (more := stream.read(count - len(data))):
        data += more
    return data


def _last_cut(held: bytes, key: bytes, fresh: int) -> int:
    """Find the last place behind a comma between rows, in what is fresh; 0 when there is none."""
    end = len(held)
    while (at := held.rfind(key, fresh, end)) > 0:
        start = max(0, at - _BETWEEN_BYTES)
        between = _BETWEEN_ROWS.search(held[start:at])
        if between is not None:
            return start + between.start() + between[0].index(b",") + 1
        end = at
    return 0


def _joined(held: bytes, stream: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", _Joined(held, stream))


class _Joined(io.RawIOBase):
    """Bytes that were read already, and the stream behind them."""

    def __init__(self, held: bytes, stream: IO[bytes]) -> None:
        self._held = held
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            return data
        return self._stream.read(size)
