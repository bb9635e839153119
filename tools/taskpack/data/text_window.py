"""A window that slides over the text of a file and knows where in the file it is."""

from __future__ import annotations

import codecs
from typing import IO

CHUNK_BYTES = 1 << 20


class TextWindow:
    """Decoded text from `at` on, read as it is asked for.

    Bytes that are not UTF-8 become lone surrogates, so that one such row does not hide the others.

    Args:
        stream: The bytes, read forward only.
        byte: Offset of its first byte in the file.
        line: Line of that byte.
    """

    def __init__(self, stream: IO[bytes], *, byte: int = 0, line: int = 1) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._marked = 0
        self.text = ""
        self.at = 0
        """Position in `text` up to which everything is dealt with."""
        self.byte = byte
        """Offset of the mark in the file."""
        self.line = line
        """Line of the mark."""
        self.ended = False
        """True when `text` reaches the end of the file."""

    def read(self) -> bool:
        """Drop what is dealt with and append at least as much as is left; False at the end."""
        if self.ended:
            return False
        self.mark()
        self.text = self.text[self.at :]
        self.at = self._marked = 0
        data = self._stream.read(max(CHUNK_BYTES, len(self.text)))
        self.ended = not data
        self.text += self._decode(data, self.ended)
        return True

    def skip_space(self) -> str:
        """Move to the next character that is no white space and return it; empty at the end."""
        while True:
            text, at = self.text, self.at
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            self.at = at
            if at < len(text):
                return text[at]
            if not self.read():
                return ""

    def mark(self) -> None:
        """Make `byte` and `line` those of `at`."""
        if self.at == self._marked:
            return
        if self.text.isascii():
            self.byte += self.at - self._marked
        else:
            passed = self.text[self._marked : self.at]
            self.byte += len(passed.encode("utf-8", "surrogateescape"))
        self.line += self.text.count("\n", self._marked, self.at)
        self._marked = self.at
