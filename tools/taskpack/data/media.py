"""Paths of media: where they are looked for, how they are spelled, bytes that become files."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from taskpack.data.draft import Draft

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"),
    (b"BM", ".bmp"), (b"II*\x00", ".tif"), (b"MM\x00*", ".tif"),
)  # fmt: skip
_REMOTE = ("http://", "https://", "s3://", "obs://", "oss://", "gs://", "hdfs://")
SHOWN_CHARACTERS = 120


@dataclass(slots=True)
class Extracted:
    """Files made of bytes that rows carry. They grow in `NAME.partial` until the rows are whole."""

    folder: Path
    files: int = 0
    """Images carried by rows; equal ones share a file."""
    dry: bool = False
    """True writes nothing."""

    @property
    def partial(self) -> Path:
        """The folder while the conversion runs."""
        return self.folder.with_name(self.folder.name + ".partial")

    def add(self, data: bytes) -> Path:
        """Write bytes under the digest of their content; return the final path."""
        digest = xxhash.xxh3_128_hexdigest(data)
        place = Path(digest[:2], digest + suffix(data))
        self.files += 1
        target = self.partial / place
        if not self.dry and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            # whole or not there: a resumed run trusts what it finds under a digest
            fresh = self.partial / f".{os.getpid()}"
            fresh.write_bytes(data)
            fresh.replace(target)
        return self.folder / place


def suffix(data: bytes) -> str:
    """Tell the file suffix of an image from its first bytes; `.bin` when it is none known."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), ".bin")


@dataclass(frozen=True, slots=True)
class MediaPlace:
    """Where the media of a file are, and from where rows name them.

    Args:
        root: Folder that relative paths in the input start from.
        base: Folder that paths in the output start from: the profile's `data.dir`.
        extracted: Takes images that rows carry in themselves.
    """

    root: Path
    base: Path
    extracted: Extracted
    _root: str = field(init=False)
    _below: str = field(init=False)
    _same: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_root", os.path.normpath(self.root.absolute()))
        object.__setattr__(self, "_below", self._root.rstrip("/") + "/")
        object.__setattr__(self, "_same", self._root == os.path.normpath(self.base.absolute()))

    def path(self, source: object, kind: str, draft: Draft) -> str | None:
        """Spell one image or video for the output, or note why that cannot be done."""
        data = None
        if not isinstance(source, str) or source.startswith("data:"):
            data, source = _carried(source, draft)
        if data is not None:
            return self._spell(str(self.extracted.add(data)))
        if not isinstance(source, str):
            return None
        if ":" in source and source.startswith(_REMOTE):
            draft.fault("remote_media", f"{kind} {_short(source)!r} is not a file: fetch it first")
            return None
        name = source.removeprefix("file://")
        if ".." in name or name.startswith("/"):
            # pathlib would take a third of the time of a conversion
            full = os.path.normpath(os.path.join(self._root, name))  # noqa: PTH118
        else:
            full = self._below + name
        if full != self._root and not full.startswith(self._below):
            draft.fault(f"outside_{kind}", f"{kind} {_short(name)!r} leaves {self.root}")
            return None
        if not os.path.isfile(full):  # noqa: PTH113
            draft.fault(f"missing_{kind}", f"{kind} {_short(name)!r} is not below {self.root}")
            return None
        return name if self._same and not name.startswith("/") else self._spell(full)

    def _spell(self, path: str) -> str:
        spelled = os.path.relpath(path, self.base)
        return str(Path(path).absolute()) if spelled.startswith("..") else spelled


def _carried(source: object, draft: Draft) -> tuple[bytes | None, object]:
    if isinstance(source, dict):
        return _cell(source, draft)
    if isinstance(source, bytes):
        return source, None
    if isinstance(source, str) and source.startswith("data:"):
        return _data_uri(source, draft), None
    return None, source


def _cell(cell: Mapping[str, Any], draft: Draft) -> tuple[bytes | None, object]:
    """Read an image as parquet files of Hugging Face hold it: bytes, or else a path."""
    data = cell.get("bytes")
    if isinstance(data, bytes) and data:
        return data, None
    path = cell.get("path") or cell.get("url") or cell.get("image")
    if not isinstance(path, str) or not path:
        draft.fault("wrong_type", f"an image has neither bytes nor a path but {sorted(cell)}")
        return None, None
    return _carried(path, draft)


def _data_uri(source: str, draft: Draft) -> bytes | None:
    head, comma, body = source.partition(",")
    try:
        if not comma or not head.endswith(";base64"):
            raise ValueError("it is not base64")
        data = base64.b64decode(body, validate=True)
        if suffix(data) == ".bin":
            raise ValueError("its bytes are no image")
    except (binascii.Error, ValueError) as error:
        draft.fault("broken_image", f"data URI {_short(source)!r} cannot be read: {error}")
        return None
    return data


def _short(name: str) -> str:
    return name if len(name) <= SHOWN_CHARACTERS else name[:SHOWN_CHARACTERS] + "..."
