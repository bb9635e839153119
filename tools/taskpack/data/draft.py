"""A row on its way: what a format found, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong with a row."""

    kind: str
    message: str


@dataclass(slots=True)
class Draft:
    """Turns and media of one row; media are as the file spells them."""

    turns: list[tuple[str, str]] = field(default_factory=list)
    """Role and text of each turn, a system turn first."""
    images: list[object] = field(default_factory=list)
    videos: list[object] = field(default_factory=list)
    markers_optional: bool = False
    """True where the format lets media without markers stand before the first question."""
    faults: list[Fault] = field(default_factory=list)

    def fault(self, kind: str, message: str) -> None:
        """Note something that is wrong."""
        self.faults.append(Fault(kind, message))


@dataclass(slots=True)
class Row:
    """A row as MindSpeed-MM reads it; every row of a file has the same keys."""

    id: str | None
    """None for a row that is named after its number."""
    images: list[str]
    turns: list[tuple[str, str]]
    videos: list[str] | None = None
    """None in a file of images, which has no such key."""

    @property
    def has_system(self) -> bool:
        """True when the first message is a system message."""
        return self.turns[0][0] == "system"

    def encode(self) -> bytes:
        """Spell the row in JSON; a row without a name lacks its head, which `named` adds.

        Joined by hand: the encoder is three times as slow on a tree as on its texts.

        Raises:
            UnicodeEncodeError: A text holds half of a surrogate pair.
        """
        head = "" if self.id is None else f'{{"id": {encode_basestring(self.id)}'
        images = ", ".join(map(encode_basestring, self.images))
        media = f'"images": [{images}]'
        if self.videos is not None:
            media += f', "videos": [{", ".join(map(encode_basestring, self.videos))}]'
        turns = ", ".join(
            [
                f'{{"role": "{role}", "content": {encode_basestring(text)}}}'
                for role, text in self.turns
            ]
        )
        return f'{head}, {media}, "messages": [{turns}]}}'.encode()


def named(number: int, row: bytes) -> bytes:
    """Give the JSON of a row without a name one from its number in the whole conversion."""
    return b'{"id": "row-%d"' % number + row
