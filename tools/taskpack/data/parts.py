"""Contents made of parts, as chat services take them: text, images and videos in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskpack.data.draft import Draft
from taskpack.data.trainer import IMAGE_MARKER, VIDEO_MARKER

_IMAGES = ("image_url", "image", "input_image")
_VIDEOS = ("video_url", "video", "input_video")
_TEXTS = ("text", "input_text", "output_text")


def join_parts(parts: list[Any], draft: Draft) -> str:
    """Join the parts to one text with a marker at the place of each image or video."""
    text = ""
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            text += part
        elif kind in _TEXTS and isinstance(part.get("text"), str):
            text += part["text"]
        elif kind in _IMAGES:
            text += IMAGE_MARKER
            draft.images += _source(part)
        elif kind in _VIDEOS:
            text += VIDEO_MARKER
            draft.videos += _source(part)
        else:
            draft.fault("unsupported", f"a part of the content is {repr(part)[:80]}")
    return text


def _source(part: Mapping[str, Any]) -> list[object]:
    """Find the file of a part; a part that is a mere place takes the next of the row's column."""
    for key in (str(part["type"]), "image_url", "image", "video_url", "video", "url", "path"):
        source = part.get(key)
        if isinstance(source, dict) and "url" in source:
            source = source["url"]
        if source and isinstance(source, (str, bytes, dict)):
            return [source]
    return []
