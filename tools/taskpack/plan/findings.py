"""One line of the list of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from taskpack.errors import TaskpackError

Status = Literal["pass", "note", "fail", "open"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check and how it ended.

    `pass` proves what it says, `note` is worth knowing, `fail` would stop or spoil the run, and
    `open` could not be checked with what was given.
    """

    name: str
    status: Status
    what: str
    where: str = ""
    why: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Give the check as plain data."""
        return {
            "name": self.name,
            "status": self.status,
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "fix": self.fix,
        }


def failed(name: str, error: TaskpackError) -> list[Check]:
    """Turn an error, and those collected with it, into failed checks."""
    return [Check(name, "fail", **record) for record in error.to_json()]
