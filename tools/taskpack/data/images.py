"""A look into image and video files, bounded in time and memory."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.data.trainer import LEAST_SIDE, WIDEST_ASPECT
from taskpack.errors import HostError

if TYPE_CHECKING:
    from PIL.Image import Image

VIDEO_SECONDS = 10
"""Longest look into one video."""
_ENDS = {"PNG": (b"IEND", 64), "JPEG": (b"\xff\xd9", 64), "GIF": (b"\x3b", 1)}
"""How files end, and how far from the last byte that may be; others are decoded to know."""
_CONTAINERS = (b"ftyp", b"\x1aE\xdf\xa3", b"RIFF", b"FLV", b"\x00\x00\x01\xba", b"G@")
# what Pillow's readers raise on damaged files
DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError,
           OverflowError, MemoryError, struct.error, zlib.error)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What a file shows."""

    size: tuple[int, int] | None
    """Width and height in pixels; None where they are not known."""
    kind: str = ""
    """Kind of finding; empty for a good file."""
    problem: str = ""


def need_pillow() -> None:
    """Fail early where images cannot be looked at.

    Raises:
        HostError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        raise HostError(
            "this Python has no Pillow",
            where=sys.executable,
            why="it reads the images of rows",
            fix="pip install 'taskpack[data]'",
        ) from None


def look_at_image(path: Path, *, deep: bool) -> Seen:
    """Read the header of an image, and all of it where `deep` or where its end is missing."""
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as image:
                size = image.size
                problem = _shape_problem(size)
                if deep or not _ends_well(path, image):
                    image.load()
        except Image.DecompressionBombError as error:
            return Seen(None, "image_bomb", str(error).split(",")[0])
        except UnidentifiedImageError:
            return Seen(None, "broken_image", "is no image that Pillow knows")
        except DAMAGE as error:
            return Seen(None, "broken_image", f"cannot be decoded: {error}")
    return problem or Seen(size)


def _shape_problem(size: tuple[int, int]) -> Seen | None:
    short, long = sorted(size)
    shown = f"{size[0]} x {size[1]} pixels"
    if short < 1:
        return Seen(None, "broken_image", f"is {shown}")
    if long / short > WIDEST_ASPECT:
        text = f"is {shown}: one side is over {WIDEST_ASPECT} times the other, which is clipped"
        return Seen(size, "extreme_ratio", text)
    if short < LEAST_SIDE:
        text = f"is {shown}: a side under {LEAST_SIDE} is stretched to it"
        return Seen(size, "small_image", text)
    return None


def _ends_well(path: Path, image: Image) -> bool:
    end = _ENDS.get(image.format or "")
    if end is None:
        return image.format == "WEBP" and _is_whole_riff(path)
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - end[1]))
        return end[0] in stream.read()


def _is_whole_riff(path: Path) -> bool:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8)[4:], "little")
    return path.stat().st_size >= length + 8


def look_at_video(path: Path) -> Seen:
    """Ask ffprobe, where it is installed, for a video stream; else look at the first bytes."""
    with path.open("rb") as stream:
        head = stream.read(12)
    if not any(head.startswith(magic) or head[4:8] == magic for magic in _CONTAINERS):
        return Seen(None, "broken_video", "is no video container known here")
    program = shutil.which("ffprobe")
    if program is None:
        return Seen(None)
    command = [program, "-v", "error", "-select_streams", "v:0", "-show_entries",
               "stream=width,height", "-of", "csv=p=0", str(path)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VIDEO_SECONDS)
    except subprocess.TimeoutExpired:
        return Seen(None, "broken_video", f"ffprobe found no end in {VIDEO_SECONDS} s")
    sides = done.stdout.strip().split(",")
    if done.returncode or len(sides) < 2 or not all(side.isdecimal() for side in sides[:2]):
        return Seen(None, "broken_video", f"has no readable stream: {done.stderr.strip()[:120]}")
    return Seen((int(sides[0]), int(sides[1])))
