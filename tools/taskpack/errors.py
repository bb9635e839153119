"""The one error tree. Every message says what, where, why and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import ClassVar


class TaskpackError(Exception):
    """A problem the user can act on; the command line prints it without a traceback.

    Args:
        what: The fault in one sentence, with the offending value in it.
        where: `path:line`, or file, tensor and rank.
        why: The rule that is broken.
        fix: What to do, with the values that would work.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.what = _one_line(what)
        self.where = _one_line(where)
        self.why = _one_line(why)
        self.fix = _one_line(fix)
        self.also: tuple[TaskpackError, ...] = ()

    def __str__(self) -> str:
        own = f"error: {self.what}\n  where: {self.where}\n  why:   {self.why}\n  fix:   {self.fix}"
        return "\n".join([own, *(str(error) for error in self.also)])

    def to_json(self) -> list[dict[str, str]]:
        """List this error and those collected with it as plain records."""
        own = {"what": self.what, "where": self.where, "why": self.why, "fix": self.fix}
        return [own, *(record for error in self.also for record in error.to_json())]


def _one_line(text: str) -> str:
    """Keep a message on its line, whatever a damaged file put into a name."""
    joined = " ".join(text.splitlines())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in joined)


class CheckFailed(TaskpackError):
    """A check ran to its end and found a problem."""

    exit_code = 1


class ProfileError(TaskpackError):
    """A profile, an option or their combination is not valid."""

    exit_code = 2


class CheckpointError(TaskpackError):
    """Weights are missing, damaged, or not of the layout they should have."""

    exit_code = 3


class DatasetError(TaskpackError):
    """A data file or one of its rows cannot be used."""

    exit_code = 4


class HostError(TaskpackError):
    """The machine lacks a program, a device, space or a permission."""

    exit_code = 5


def raise_collected(errors: Sequence[TaskpackError]) -> None:
    """Raise the first error with all others attached; return when there is none."""
    if not errors:
        return
    first = errors[0]
    first.also = (*first.also, *errors[1:])
    raise first


def nearest(name: str, known: Iterable[str]) -> str:
    """Phrase a hint at the closest known names, or list them all when none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(candidate) for candidate in close) + "?"
    return "use one of: " + ", ".join(names)


def shorten(names: Sequence[str], limit: int = 10) -> str:
    """Join the first names and count the rest."""
    shown = ", ".join(names[:limit])
    rest = len(names) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"
