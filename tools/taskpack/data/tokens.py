"""Tokens of rows: counted by the model's tokenizer, or estimated where that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from taskpack.data.trainer import IMAGE_MARKER, Talk, kept_lengths, turn_texts

ASCII_PER_TOKEN, TOKENS_PER_OTHER = 3.5, 0.8
ESTIMATE = f"one token per {ASCII_PER_TOKEN} ASCII characters, {TOKENS_PER_OTHER} per other one"
_SPECIAL = re.compile(r"<\|[a-z_]+\|>")

Counter = Callable[[str], int]


def estimate(text: str) -> int:
    """Estimate the tokens of a text; special tokens are one each."""
    plain, specials = _SPECIAL.subn("", text)
    letters = len(plain)
    others = 0 if plain.isascii() else letters - len(plain.encode("ascii", "ignore"))
    return (
        specials
        + -(-int((letters - others) * 10) // int(ASCII_PER_TOKEN * 10))
        + int(others * TOKENS_PER_OTHER + 0.5)
    )


@lru_cache(maxsize=1)
def text_counter(hf_dir: Path | None) -> tuple[Counter, bool]:
    """Give a function that counts tokens, and whether it counts exactly."""
    file = hf_dir / "tokenizer.json" if hf_dir else None
    if file is None or not file.is_file():
        return estimate, False
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        return estimate, False
    tokenizer = Tokenizer.from_file(str(file))

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count, True


def row_tokens(
    talk: Talk, images: Sequence[int], seq_length: int, count: Counter
) -> tuple[int, int, bool]:
    """Measure a row against the sequence length.

    Args:
        talk: Its turns, with one marker per image.
        images: Tokens of each image.
        seq_length: Tokens of a sample.
        count: Counts the tokens of a text.

    Returns:
        Tokens before the cut, tokens after it, and whether the cut goes through an image.
    """
    left = iter(images)
    lengths: list[tuple[int, int]] = []
    ends: list[int] = []
    for prompt, answer in turn_texts(talk):
        texts = [count(text) for text in prompt.split(IMAGE_MARKER)]
        shown = [next(left) for _ in texts[1:]]
        # start and end markers of an image are a token each
        places = accumulate(text + 1 + image + 1 for text, image in zip(texts, shown, strict=False))
        ends.append(max((place - 1 for place in places), default=0))
        lengths.append((sum(texts) + sum(shown) + 2 * len(shown), count(answer)))
    kept = list(kept_lengths(lengths, seq_length))
    whole = sum(map(sum, lengths))
    through = any(end > (kept[turn][0] if turn < len(kept) else 0) for turn, end in enumerate(ends))
    return whole, sum(map(sum, kept)), through
