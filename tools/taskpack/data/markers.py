"""Markers in texts against media of a row, and repairs that leave no choice."""

from __future__ import annotations

import re

from taskpack.data.draft import Draft
from taskpack.data.trainer import IMAGE_MARKER, VIDEO_MARKER

_ODD = {
    IMAGE_MARKER: re.compile(r"<\s*(?:image|img)\s*/?\s*>|<\|image_pad\|>", re.IGNORECASE),
    VIDEO_MARKER: re.compile(r"<\s*video\s*/?\s*>|<\|video_pad\|>", re.IGNORECASE),
}
_PAD_FRAME = re.compile(r"<\|vision_start\|>\s*(<(?:image|video)>)\s*<\|vision_end\|>")

Turns = list[tuple[str, str]]


def marker_fault(turns: Turns, marker: str, media: int) -> str | None:
    """Say how the markers of one kind differ from the media; None when they agree.

    The trainer stops, hours into its map step, where the counts differ.
    """
    total = sum(text.count(marker) for _, text in turns)
    if total and any(marker in text for role, text in turns if role != "user"):
        return f"a {marker} stands outside the user's turns"
    if total != media:
        return f"{total} {marker} for {media} {marker.strip('<>')}(s)"
    return None


def is_plain(turns: Turns, images: int) -> bool:
    """Say whether all markers stand in the first question, as in nearly every row; it is quick."""
    text = " ".join([text for _, text in turns])
    if VIDEO_MARKER in text or text.count(IMAGE_MARKER) != images:
        return False
    return not images or (turns[0][0] == "user" and turns[0][1].count(IMAGE_MARKER) == images)


def place_optional(draft: Draft) -> None:
    """Put media without markers before the first question, where the format says so."""
    for marker, media in ((IMAGE_MARKER, draft.images), (VIDEO_MARKER, draft.videos)):
        if media and not any(marker in text for _, text in draft.turns):
            _put_first(draft.turns, marker, len(media))


def repair(turns: Turns, marker: str, media: int) -> str | None:
    """Repair markers in place if only one way is right, and say what was done; else None."""
    if marker_fault(turns, marker, media) is None:
        return None
    fixed = [(role, _regular(text, marker)) for role, text in turns]
    if marker_fault(fixed, marker, media) is None:
        turns[:] = fixed
        return f"spelled its markers {marker}"
    if media and not any(marker in text for _, text in fixed):
        _put_first(fixed, marker, media)
        turns[:] = fixed
        return f"put {media} {marker} before the first question"
    asked = sum(text.count(marker) for role, text in fixed if role == "user")
    if asked == media:
        turns[:] = [
            (role, text if role == "user" else text.replace(marker, "").strip())
            for role, text in fixed
        ]
        if all(text for role, text in turns if role != "system"):
            return f"removed {marker} from turns that are not the user's"
        turns[:] = fixed
    return None


def _regular(text: str, marker: str) -> str:
    return _PAD_FRAME.sub(r"\1", _ODD[marker].sub(marker, text))


def _put_first(turns: Turns, marker: str, count: int) -> None:
    for number, (role, text) in enumerate(turns):
        if role == "user":
            turns[number] = (role, f"{marker * count}\n{text}")
            return
