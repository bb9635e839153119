"""The commands that a README shows, and what it says they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s+)# .*$")
_EXIT = re.compile(r"# exit (\d+)")


@dataclass(frozen=True)
class Command:
    """One command, without its comment.

    Attributes:
        text: The command as a shell reads it, continued lines joined.
        code: The exit code that the README promises.
    """

    text: str
    code: int = 0


@dataclass
class Block:
    """A `bash` block, and the `text` block right behind it.

    Attributes:
        commands: Its commands in order.
        output: What the last one prints, when the README says so.
    """

    commands: list[Command]
    output: str | None = None


@dataclass
class Section:
    """What stands under one heading of the second level; its blocks are run one after another."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def commands(self) -> list[Command]:
        """Every command of the section."""
        return [command for block in self.blocks for command in block.commands]


def read_sections(path: Path) -> list[Section]:
    """Read the sections of a README that hold commands."""
    parts = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pairs = zip(["", *parts[1::2]], parts[::2], strict=True)
    sections = [Section(title, list(_blocks(text))) for title, text in pairs]
    return [section for section in sections if section.blocks]


def fence_kinds(path: Path) -> set[str]:
    """Name the languages of all fenced blocks."""
    return {match[1] for match in _FENCE.finditer(path.read_text(encoding="utf-8"))}


def _blocks(text: str) -> Iterator[Block]:
    last: Block | None = None
    last_end = -1
    for match in _FENCE.finditer(text):
        if match[1] == "bash":
            last, last_end = Block(list(_commands(match[2]))), match.end()
            yield last
        elif match[1] == "text" and last is not None and match.start() == last_end + 1:
            last.output = match[2]


def _commands(text: str) -> Iterator[Command]:
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"\s+", " ", _COMMENT.sub("", line)).strip()
        if command:
            code = _EXIT.search(line)
            yield Command(command, int(code[1]) if code else 0)
