"""What the trainer does with a row: roles, markers, sizes of images, the cut to a length.

These rules exist once: `data check` predicts with them, the rehearsal trains by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IMAGE_MARKER = "<image>"
VIDEO_MARKER = "<video>"
DEFAULT_SYSTEM = "You are a helpful assistant."
PAD_MULTIPLE = 8
"""Tokens; a batch is padded to a multiple of it."""
LEAST_SIDE = 28
"""Pixels; a shorter side is scaled up to it, distorting the image."""
WIDEST_ASPECT = 200
CLIPPED_ASPECT = 180
LEAST_PROCESSED, MOST_PROCESSED = 56 * 56, 12_845_056
"""Pixels; limits of the published processors, behind those of the profile."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names under which data.json says that a row holds its things."""

    messages: str = "messages"
    images: str | None = "images"
    videos: str | None = None
    role: str = "role"
    content: str = "content"
    user: str = "user"
    assistant: str = "assistant"
    system: str | None = None

    @classmethod
    def of_attr(cls, attr: Mapping[str, Any]) -> Columns:
        """Read the `attr` section of data.json."""
        return cls(
            messages=attr["messages"],
            images=attr.get("images"),
            videos=attr.get("videos"),
            role=attr["role_tag"],
            content=attr["content_tag"],
            user=attr["user_tag"],
            assistant=attr["assistant_tag"],
            system=attr.get("system_tag"),
        )


@dataclass(frozen=True, slots=True)
class Talk:
    """The turns of a row as the trainer takes them."""

    system: str
    turns: tuple[tuple[str, str], ...]
    """Question and answer of each."""


def alternates(roles: Sequence[object], user: str = "user", assistant: str = "assistant") -> bool:
    """Say whether questions and answers take turns; the trainer drops rows where they do not."""
    pairs = len(roles) // 2
    return pairs > 0 and roles == [user, assistant] * pairs


def read_talk(messages: object, columns: Columns) -> Talk | None:
    """Pair questions with answers; None where the trainer drops the row, with a warning only."""
    if not isinstance(messages, list) or not messages:
        return None
    if not all(isinstance(message, Mapping) for message in messages):
        return None
    spoken = [(m.get(columns.role), m.get(columns.content)) for m in messages]
    system = ""
    if columns.system and spoken[0][0] == columns.system:
        system = str(spoken.pop(0)[1])
    if not alternates([role for role, _ in spoken], columns.user, columns.assistant):
        return None
    pairs = zip(spoken[::2], spoken[1::2], strict=True)
    return Talk(system, tuple((str(user[1]), str(answer[1])) for user, answer in pairs))


def turn_texts(talk: Talk) -> list[tuple[str, str]]:
    """Spell each turn as the template does: what comes before the answer, and the answer."""
    texts = []
    for number, (question, answer) in enumerate(talk.turns):
        system = talk.system or DEFAULT_SYSTEM
        head = "" if number else f"<|im_start|>system\n{system}<|im_end|>\n"
        prompt = f"{head}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        texts.append((prompt, f"{answer}<|im_end|>\n"))
    return texts


def kept_lengths(lengths: Iterable[tuple[int, int]], seq_length: int) -> Iterator[tuple[int, int]]:
    """Share `seq_length` tokens among turns; those behind the last token are left out.

    Args:
        lengths: Tokens of the prompt and of the answer of each turn, in order of importance.
        seq_length: Tokens of a sample.
    """
    used = 0
    for source, target in lengths:
        if used >= seq_length:
            return
        kept = cut_lengths(source, target, seq_length - used)
        used += sum(kept)
        yield kept


def cut_lengths(source: int, target: int, limit: int) -> tuple[int, int]:
    """Share `limit` tokens between a prompt and its answer as the trainer does.

    A short answer is kept whole, else a short prompt is, else both shrink in proportion.
    """
    if target * 2 < limit:
        most = limit
    elif source * 2 < limit:
        most = limit - source
    else:
        most = int(limit * target / (source + target))
    kept = min(most, target)
    return min(max(limit - kept, 0), source), kept


def limited_size(size: tuple[int, int], most: int, least: int) -> tuple[int, int]:
    """Bring an image's area between the pixel limits of data.json; they come first."""
    if size[0] * size[1] > most:
        size = _scaled(size, most)
    if size[0] * size[1] < least:
        size = _scaled(size, least)
    return size


def _scaled(size: tuple[int, int], pixels: int) -> tuple[int, int]:
    factor = math.sqrt(pixels / (size[0] * size[1]))
    return max(1, int(size[0] * factor)), max(1, int(size[1] * factor))


def regular_size(size: tuple[int, int]) -> tuple[int, int]:
    """Raise short sides and clip extreme shapes, which the model's own processor would refuse."""
    width, height = size
    if min(size) < LEAST_SIDE:
        width, height = max(width, LEAST_SIDE), max(height, LEAST_SIDE)
    if width / height > WIDEST_ASPECT:
        width = height * CLIPPED_ASPECT
    if height / width > WIDEST_ASPECT:
        height = width * CLIPPED_ASPECT
    return width, height


def image_tokens(size: tuple[int, int], most: int, least: int, *, pixels_per_side: int) -> int:
    """Count the tokens of an image.

    Args:
        size: Width and height of the file, in pixels.
        most: `image_max_pixels`.
        least: `image_min_pixels`.
        pixels_per_side: Side of the square that becomes one token: patch size times merge size.
    """
    width, height = regular_size(limited_size(size, most, least))
    unit = pixels_per_side

    def rounded(side: float, step: Any) -> int:
        return max(unit, int(step(side / unit)) * unit)

    wide, high = rounded(width, round), rounded(height, round)
    if wide * high > MOST_PROCESSED:
        factor = math.sqrt(width * height / MOST_PROCESSED)
        wide, high = rounded(width / factor, math.floor), rounded(height / factor, math.floor)
    elif wide * high < LEAST_PROCESSED:
        factor = math.sqrt(LEAST_PROCESSED / (width * height))
        wide, high = rounded(width * factor, math.ceil), rounded(height * factor, math.ceil)
    return (wide // unit) * (high // unit)


def padded_length(lengths: Sequence[int]) -> int:
    """Give the tokens that a batch of samples is padded to."""
    return -(-max(lengths) // PAD_MULTIPLE) * PAD_MULTIPLE
