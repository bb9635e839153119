"""Tell quickly in which parts of a log an error may be, so that the rest is never split."""

from __future__ import annotations

import re
from collections.abc import Collection

PROGRESS = b"elapsed time per iteration"
"""In every line that Megatron prints after a step."""

# Codes of CANN and torch_npu are in capitals wherever they are printed.
_CODES = re.compile(rb"E(?:RR\d{5}|[A-Z]\d{4})\b")


class LogFilter:
    """Searches for words in lower case.

    A hundred words are slow to search, and most of a long log are lines of progress, so those are
    passed over first. One that does not end as Megatron ends it may have an error glued to it.
    """

    def __init__(self, words: Collection[bytes]) -> None:
        self._words = tuple(word for word in words if not _CODES.fullmatch(word.upper()))

    def may_hold(self, block: bytes) -> bool:
        """Tell whether a word or a code is in a block."""
        if PROGRESS in block:
            block = b"\n".join(line for line in block.split(b"\n") if not _is_progress(line))
        lowered = block.lower()
        return any(word in lowered for word in self._words) or _CODES.search(block) is not None


def _is_progress(line: bytes) -> bool:
    return PROGRESS in line and line.endswith((b"|", b"| ", b"|\r"))
