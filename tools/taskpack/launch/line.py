"""One line of what the doctor found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Line:
    """A check and how it ended.

    `ok` holds, `warn` is worth knowing or could not be looked at, `fail` would stop or spoil a run.
    """

    name: str
    status: Status
    what: str
    where: str = ""
    why: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Give the line as plain data."""
        return asdict(self)


def ok(name: str, what: str, *, where: str = "") -> Line:
    """Say what holds."""
    return Line(name, "ok", what, where)


def warn(name: str, what: str, *, why: str, fix: str, where: str = "") -> Line:
    """Say what is worth knowing."""
    return Line(name, "warn", what, where, why, fix)


def fail(name: str, what: str, *, why: str, fix: str, where: str = "") -> Line:
    """Say what would stop or spoil a run."""
    return Line(name, "fail", what, where, why, fix)


def plain(text: str) -> str:
    """Take out what would move the cursor of a terminal: programs and logs may print anything."""
    return "".join(char if char.isprintable() else "?" for char in text)
