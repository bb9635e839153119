"""Tell quickly in which parts of a log an error may be, so that the rest is never split."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

_PIECE = 3
"""Bytes of the pieces that are searched first."""

# What fills a healthy log: pieces of it would be found everywhere.
_USUAL = (
    b" [2026-08-01 10:00:00] iteration 1/ 100 | consumed samples: 96 | "
    b"elapsed time per iteration (ms): 900.0 | throughput per npu (tflop/s): 1.0 | "
    b"learning rate: 1.0e-05 | global batch size: 96 | lm loss: 1.0e+00 | loss scale: 1.0 | "
    b"grad norm: 1.0 | number of skipped iterations: 0 | number of nan iterations: 0 | "
    b"tokens per sample: 1024 saving checkpoint at iteration to successfully saved "
    b"loading building model warning"
)
# Codes of CANN and torch_npu are in capitals wherever they are printed.
_CODES = re.compile(rb"E(?:RR\d{5}|[A-Z]\d{4})\b")


class LogFilter:
    """Searches for words in lower case.

    A hundred words are slow to search one by one, so a few short pieces are searched first, of
    which every word holds one; only where a piece is found do the words count.
    """

    def __init__(self, words: Collection[bytes]) -> None:
        self.words = tuple(word for word in words if not _CODES.fullmatch(word.upper()))
        self.pieces = tuple(_cover(self.words))

    def may_hold(self, block: bytes) -> bool:
        """Tell whether a word or a code is in a block."""
        lowered = block.lower()
        if any(piece in lowered for piece in self.pieces) and any(
            word in lowered for word in self.words
        ):
            return True
        return _CODES.search(block) is not None


def _cover(words: Collection[bytes]) -> Iterator[bytes]:
    """Choose pieces so that each word holds one, those first that most words hold."""
    left = set(words)
    while left:
        counts = Counter(piece for word in left for piece in _pieces(word))
        if not counts:
            yield from sorted(left)
            return
        best = min(counts, key=lambda piece: (-counts[piece], piece))
        yield best
        left = {word for word in left if best not in word}


def _pieces(word: bytes) -> set[bytes]:
    found = {word[at : at + _PIECE] for at in range(len(word) - _PIECE + 1)}
    # numbers are everywhere as well
    return {piece for piece in found if piece not in _USUAL and not piece[:1].isdigit()}
