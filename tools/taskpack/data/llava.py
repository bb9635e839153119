"""One LLaVA row to one MindSpeed-MM row. Pure but for the look at whether an image exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}
IMAGE_MARKER = "<image>"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one row."""

    row: int
    """Number of the row in its file, from 0."""
    id: str | None
    kind: str
    """`wrong_type`, `bad_turns`, `marker_mismatch`, `missing_image` or `unsupported`."""
    message: str
    file: str = ""

    def __str__(self) -> str:
        name = f" (id {self.id})" if self.id is not None else ""
        return f"{self.file} row {self.row}{name}: {self.message}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row as MindSpeed-MM reads it; every row has the same keys."""

    id: str
    images: list[str]
    messages: list[dict[str, str]]

    def to_json(self) -> dict[str, object]:
        """Give the row under the names that `data.json` maps."""
        return {"id": self.id, "images": self.images, "messages": self.messages}


class RowReader:
    """Reads the rows of one file, collecting every fault of a row instead of the first.

    Args:
        file: Name shown in findings.
        media_root: Folder that relative image paths start from.
    """

    def __init__(self, file: str, media_root: Path) -> None:
        self._file = file
        self._media_root = media_root

    def read(self, number: int, value: object) -> Row | list[Finding]:
        """Convert one row, or say everything that is wrong with it."""
        if not isinstance(value, Mapping):
            kind = type(value).__name__
            return [Finding(number, None, "wrong_type", f"is a {kind}, not an object", self._file)]
        raw_id = value.get("id")
        row_id = f"row-{number}" if raw_id is None else str(raw_id)
        faults: list[tuple[str, str]] = []
        if isinstance(raw_id, bool | float | list | Mapping):
            faults.append(("wrong_type", f"id is {raw_id!r}, not text or a whole number"))
        if value.get("video"):
            faults.append(("unsupported", "has a video; this command converts images and text"))
        images = _images(value.get("image"), faults)
        messages = _messages(value.get("conversations"), faults)
        if not faults:
            _check_markers(images, messages, faults)
        faults.extend(
            ("missing_image", f"image {image!r} is not below {self._media_root}")
            for image in images
            if not (self._media_root / image).is_file()
        )
        if faults:
            shown = None if raw_id is None else row_id
            return [Finding(number, shown, kind, text, self._file) for kind, text in faults]
        return Row(row_id, images, messages)


def _images(value: object, faults: list[tuple[str, str]]) -> list[str]:
    if value is None or value == "":
        return []
    images = value if isinstance(value, list) else [value]
    paths = [image for image in images if isinstance(image, str) and image]
    if len(paths) != len(images):
        faults.append(("wrong_type", f"image is {value!r}, not a path or a list of paths"))
    return paths


def _messages(value: object, faults: list[tuple[str, str]]) -> list[dict[str, str]]:
    if not isinstance(value, list):
        faults.append(("wrong_type", f"conversations is {value!r}, not a list of turns"))
        return []
    messages = []
    for number, turn in enumerate(value):
        speaker = turn.get("from") if isinstance(turn, Mapping) else None
        content = turn.get("value") if isinstance(turn, Mapping) else None
        if not isinstance(speaker, str) or speaker not in ROLES:
            known = ", ".join(ROLES)
            faults.append(("bad_turns", f"turn {number} is from {speaker!r}, not one of {known}"))
        elif not isinstance(content, str) or (not content.strip() and speaker != "system"):
            faults.append(("bad_turns", f"turn {number} of {speaker} has no text"))
        else:
            messages.append({"role": ROLES[speaker], "content": content})
    if len(messages) == len(value):
        _check_order([message["role"] for message in messages], faults)
    return messages


def _check_order(roles: list[str], faults: list[tuple[str, str]]) -> None:
    """The trainer drops a row, with a warning nobody reads, whose turns do not alternate."""
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    wanted = ["user", "assistant"] * (len(spoken) // 2)
    if not spoken or spoken != wanted:
        order = " ".join(roles) or "nothing"
        faults.append(("bad_turns", f"turns are {order}; they must be user assistant, repeated"))


def _check_markers(
    images: list[str], messages: list[dict[str, str]], faults: list[tuple[str, str]]
) -> None:
    """The trainer stops, hours into its map step, where these counts differ."""
    asked = sum(m["content"].count(IMAGE_MARKER) for m in messages if m["role"] == "user")
    total = sum(m["content"].count(IMAGE_MARKER) for m in messages)
    if asked != total:
        faults.append(("marker_mismatch", f"an {IMAGE_MARKER} stands outside the user's turns"))
    elif total != len(images):
        text = f"{total} {IMAGE_MARKER} for {len(images)} image(s)"
        faults.append(("marker_mismatch", text))
