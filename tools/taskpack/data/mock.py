"""Rows and pictures made up for performance runs, the same for the same seed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taskpack.data.draft import Row
from taskpack.data.images import need_pillow
from taskpack.data.outputs import already_there
from taskpack.data.row_file import RowFile, merge_folder
from taskpack.data.trainer import IMAGE_MARKER

WORDS = ("red", "green", "blue", "left", "right", "above", "below", "large", "small", "round")


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """What is made up."""

    rows: int
    """Rows of the file."""
    sizes: Sequence[tuple[int, int]]
    """Width and height of pictures, taken in turn."""
    images: int = 1
    """Pictures of a row; 0 makes rows of text."""
    words: int = 40
    """Words of an answer."""
    seed: int = 42
    """Start of every draw."""
    overwrite: bool = False
    """True replaces files that are there."""


def make_mock(out: Path, options: MockOptions) -> dict[str, int]:
    """Write rows and, beside them, a folder of pictures: `OUT_media/WIDTHxHEIGHT.jpg`.

    Rows share the pictures of a size, so that reading them from disk does not set the pace.

    Returns:
        How many rows and pictures were written.

    Raises:
        HostError: The file or the folder is already there.
    """
    need_pillow()
    media = out.with_name(out.stem + "_media")
    for place in (out, media):
        if place.exists() and not options.overwrite:
            raise already_there(place)
    partial = media.with_name(media.name + ".partial")
    draw = random.Random(options.seed)
    file = RowFile(out)
    try:
        names = _make_pictures(partial, media.name, options) if options.images else []
        for number in range(options.rows):
            file.add(_row(number, names, draw, options).encode())
        file.finish()
        if names:
            merge_folder(partial, media)
        file.rename()
    finally:
        file.discard()
        shutil.rmtree(partial, ignore_errors=True)
    return {"rows": file.rows, "images": len(names)}


def _row(number: int, names: Sequence[str], draw: random.Random, options: MockOptions) -> Row:
    first = number * options.images
    images = [names[(first + k) % len(names)] for k in range(options.images)] if names else []
    question = IMAGE_MARKER * len(images) + "\n" * bool(images) + "What is " + draw.choice(WORDS)
    answer = " ".join(draw.choices(WORDS, k=options.words))
    return Row(f"mock-{number}", images, [("user", question + "?"), ("assistant", answer + ".")])


def _make_pictures(folder: Path, shown: str, options: MockOptions) -> list[str]:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(options.seed)
    names = []
    for width, height in dict.fromkeys(options.sizes):
        # noise in blocks of 8 pixels: as large a file as a photo has
        coarse = noise.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
        pixels = coarse.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
        name = f"{width}x{height}.jpg"
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / name, quality=90)
        names.append(f"{shown}/{name}")
    return names


def describe(result: dict[str, int], *, as_json: bool) -> str:
    """Say what was made."""
    if as_json:
        return json.dumps(result)
    return f"{result['rows']} rows made, with {result['images']} pictures"
