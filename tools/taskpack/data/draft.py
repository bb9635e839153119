"""A row on its way: what a format found, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from taskpack.data.fast_json import dumps


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
        """Spell the row in JSON; a row without a name lacks its first key, which `named` adds.

        Raises:
            UnicodeEncodeError: A text holds half of a surrogate pair.
        """
        value: dict[str, object] = {} if self.id is None else {"id": self.id}
        value["images"] = self.images
        if self.videos is not None:
            value["videos"] = self.videos
        value["messages"] = [{"role": role, "content": text} for role, text in self.turns]
        return dumps(value)


def named(number: int, row: bytes) -> bytes:
    """Give the JSON of a row without a name one from its number in the whole conversion."""
    return b'{"id":"row-%d",' % number + row[1:]
