"""One MindSpeed-MM row against everything that the trainer will do with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from taskpack.data.findings import Finding
from taskpack.data.images import Seen, look_at_image, look_at_video
from taskpack.data.json_rows import RawRow, parsed
from taskpack.data.markers import marker_fault
from taskpack.data.sources import BYTE_ORDER_MARK
from taskpack.data.tokens import row_tokens, text_counter
from taskpack.data.trainer import IMAGE_MARKER, VIDEO_MARKER, Columns, Talk, image_tokens, read_talk

SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of a profile that decide what becomes of a row."""

    columns: Columns
    folders: tuple[Path, ...]
    """Where a media path is looked for, in this order."""
    seq_length: int
    image_max_pixels: int
    image_min_pixels: int
    pixels_per_side: int
    """Side of the square that becomes one token."""
    hf_dir: Path | None
    """Folder of the tokenizer."""
    deep: bool = False
    """True decodes every image whole."""


@dataclass(slots=True)
class Judged:
    """What is known of one row."""

    findings: list[tuple[str, str]] = field(default_factory=list)
    id: str | None = None
    tokens: int = 0
    """Before the cut."""
    visual_tokens: int = 0
    kept: int = 0
    """Tokens after the cut."""
    turns: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Pixels of each image."""
    media: list[Path] = field(default_factory=list)
    opening: tuple[str, str] = ("", "")
    """How the first question and its answer begin."""

    def fault(self, kind: str, message: str) -> None:
        """Note something that is wrong."""
        self.findings.append((kind, message))


def judge(raw: RawRow, limits: Limits) -> Judged:
    """Find everything that is wrong with a row, and measure it."""
    judged = Judged()
    raw = parsed(raw)
    if raw.fault:
        judged.fault("broken_json", raw.fault)
        return judged
    row = raw.value
    if not isinstance(row, Mapping):
        judged.fault("wrong_type", f"is a {type(row).__name__}, not an object")
        return judged
    judged.id = _row_id(row, judged)
    images = _names(row, limits.columns.images, judged)
    videos = _names(row, limits.columns.videos, judged)
    talk = _talk(row, limits.columns, judged)
    _judge_kinds(row, images, videos, limits.columns, judged)
    if talk is not None:
        _judge_markers(row[limits.columns.messages], images, videos, limits.columns, judged)
    _look(images, videos, limits, judged)
    if talk is not None and not judged.findings:
        question, answer = talk.turns[0]
        judged.opening = question[:SHOWN_CHARACTERS], answer[:SHOWN_CHARACTERS]
        judged.turns = len(talk.turns)
        _measure(talk, limits, judged)
    return judged


def _row_id(row: Mapping[str, Any], judged: Judged) -> str | None:
    name = row.get("id")
    if name is not None and not isinstance(name, str | int):
        judged.fault("wrong_type", f"id is {repr(name)[:80]}, not text or a whole number")
        return None
    return None if name is None else str(name)


def _names(row: Mapping[str, Any], column: str | None, judged: Judged) -> list[str]:
    value = row.get(column) if column else None
    if value is None:
        return []
    if not isinstance(value, list):
        judged.fault("wrong_type", f"{column} is {repr(value)[:80]}, not a list of paths")
        return []
    names = [name for name in value if isinstance(name, str) and name]
    if len(names) != len(value):
        judged.fault("wrong_type", f"{column} is {repr(value)[:80]}: each must be a path")
    return names


def _talk(row: Mapping[str, Any], columns: Columns, judged: Judged) -> Talk | None:
    messages = row.get(columns.messages)
    if not isinstance(messages, list):
        found = f"{columns.messages} is {repr(messages)[:80]}, not a list of turns"
        judged.fault("wrong_type", found)
        return None
    if not all(isinstance(message, Mapping) for message in messages):
        judged.fault("wrong_type", f"a turn of {columns.messages} is not an object")
        return None
    contents = [message.get(columns.content) for message in messages]
    talk = read_talk(messages, columns)
    if talk is None:
        judged.fault(*_why_dropped(messages, columns))
    sound = True
    for number, text in enumerate(contents):
        who = messages[number].get(columns.role)
        if not isinstance(text, str) or not text.strip():
            shown = "null" if text is None else repr(text)[:40]
            judged.fault("empty_turn", f"turn {number} of {who} is {shown}, not a text")
            sound = False
    if sound:
        _judge_letters(" ".join(map(str, contents)), judged)
    return talk if sound else None


def _why_dropped(messages: list[Mapping[str, Any]], columns: Columns) -> tuple[str, str]:
    roles = [str(message.get(columns.role)) for message in messages]
    order = " ".join(roles[:12]) + (" ..." if len(roles) > 12 else "") or "nothing"
    if roles[:1] == ["system"] and columns.system is None:
        text = (
            f"turns are {order}: without data.system_tag the trainer drops rows with a system one"
        )
        return "system_tag", text
    wanted = f"{columns.user} {columns.assistant}"
    return "bad_turns", f"turns are {order}; the trainer drops all but {wanted}, repeated"


def _judge_letters(text: str, judged: Judged) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        judged.fault("not_utf8", f"holds {text[error.start : error.end][:4]!a}, which is not UTF-8")
    if BYTE_ORDER_MARK in text:
        judged.fault("bom", "a text holds a byte order mark (U+FEFF)")


def _judge_kinds(
    row: Mapping[str, Any],
    images: list[str],
    videos: list[str],
    columns: Columns,
    judged: Judged,
) -> None:
    """Media of a kind that data.json does not name would be ignored, and their markers not."""
    if images and (videos or (columns.videos is None and row.get("videos"))):
        text = "has images and videos; in a batch the pixels of one overwrite the other's"
        judged.fault("mixed_media", text)
    elif columns.videos is None and row.get("videos"):
        judged.fault("mixed_media", "has videos, but data.media is not videos")
    elif columns.images is None and row.get("images"):
        judged.fault("mixed_media", "has images, but data.media is not images")


def _judge_markers(
    messages: list[Mapping[str, Any]],
    images: list[str],
    videos: list[str],
    columns: Columns,
    judged: Judged,
) -> None:
    if judged.findings:
        return
    turns = [
        ("user" if message.get(columns.role) == columns.user else "", message[columns.content])
        for message in messages
    ]
    for marker, media in ((IMAGE_MARKER, images), (VIDEO_MARKER, videos)):
        problem = marker_fault(turns, marker, len(media))
        if problem:
            judged.fault("marker_mismatch", problem)


def _look(images: list[str], videos: list[str], limits: Limits, judged: Judged) -> None:
    for kind, names in (("image", images), ("video", videos)):
        for name in names:
            path = _find(name, kind, limits, judged)
            if path is None:
                continue
            judged.media.append(path)
            seen = look_at_video(path) if kind == "video" else _image(path, limits)
            if seen.kind:
                judged.fault(seen.kind, f"{kind} {name!r} {seen.problem}")
            elif seen.size:
                judged.sizes.append(seen.size)


def _image(path: Path, limits: Limits) -> Seen:
    return look_at_image(path, deep=limits.deep)


def _find(name: str, kind: str, limits: Limits, judged: Judged) -> Path | None:
    """Look where the trainer looks: below its folder, and if it is not there, as it stands."""
    shown = name if len(name) <= SHOWN_CHARACTERS else name[:SHOWN_CHARACTERS] + "..."
    if ".." in Path(name).parts:
        judged.fault(f"outside_{kind}", f"{kind} {shown!r} leads out of its folder")
        return None
    tried = []
    for folder in limits.folders:
        path = folder / name
        if os.path.isfile(path):  # noqa: PTH113 - a loop of links or a NUL is just not a file
            return path
        tried.append(str(path) if len(name) <= SHOWN_CHARACTERS else shown)
    where = " nor ".join(dict.fromkeys(tried))
    judged.fault(f"missing_{kind}", f"{kind} {shown!r} is not a file: not {where}")
    return None


def _measure(talk: Talk, limits: Limits, judged: Judged) -> None:
    if limits.columns.videos:
        return
    images = [
        image_tokens(
            size,
            limits.image_max_pixels,
            limits.image_min_pixels,
            pixels_per_side=limits.pixels_per_side,
        )
        for size in judged.sizes
    ]
    count, _ = text_counter(limits.hf_dir)
    judged.tokens, judged.kept, through = row_tokens(talk, images, limits.seq_length, count)
    judged.visual_tokens = sum(images)
    if through:
        text = (
            f"has {judged.tokens} tokens, {judged.visual_tokens} of them images; the cut at "
            f"{limits.seq_length} goes through an image, which stops the trainer"
        )
        judged.fault("cut_image", text)


@dataclass(frozen=True, slots=True)
class CheckBatch:
    """Rows of one file to judge."""

    file: str
    rows: list[RawRow]
    limits: Limits
    with_rows: bool = False
    """True hands bad rows back whole."""


@dataclass(slots=True)
class CheckedBatch:
    """What became of a batch."""

    findings: list[list[Finding]]
    """Faults of each bad row."""
    values: list[object]
    """The bad rows, where they were asked for."""
    ids: list[int]
    """A digest of the id of each row, 0 for none."""
    bad: bytearray
    """1 for each bad row, 0 for each good one."""
    measures: list[Judged]
    """Every good row."""
    columns: frozenset[str]
    """Keys that some row has."""


def judge_batch(batch: CheckBatch) -> CheckedBatch:
    """Judge every row of a batch."""
    result = CheckedBatch([], [], [], bytearray(), [], frozenset())
    for text in batch.rows:
        raw = parsed(text)
        judged = judge(raw, batch.limits)
        result.ids.append(_digest(judged.id))
        result.bad.append(bool(judged.findings))
        if isinstance(raw.value, Mapping):
            result.columns |= raw.value.keys()
        if judged.findings:
            result.findings.append(list(_spelled(raw, judged, batch.file)))
            result.values += [raw.value] if batch.with_rows else []
        else:
            result.measures.append(judged)
    return result


def _digest(name: str | None) -> int:
    if name is None:
        return 0
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) or 1


def _spelled(raw: RawRow, judged: Judged, file: str) -> Iterator[Finding]:
    name = None if judged.id is None else _clean(judged.id)
    for kind, text in judged.findings:
        yield Finding(raw.number, name, kind, _clean(text), file, raw.line, raw.byte)


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
