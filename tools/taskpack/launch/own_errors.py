"""The four-line errors of taskpack and of the rendered scripts, found in a log."""

from __future__ import annotations

from dataclasses import dataclass

from taskpack.launch.log_lines import LogLine

_KEYS = ("where", "why", "fix")


@dataclass(slots=True)
class OwnError:
    """One such error."""

    what: str
    where: str = ""
    why: str = ""
    fix: str = ""


class OwnErrors:
    """Puts the four lines together."""

    def __init__(self) -> None:
        self._open: OwnError | None = None
        self._next = 0

    @property
    def busy(self) -> bool:
        """True between the first line and the last."""
        return self._open is not None

    def feed(self, line: LogLine) -> OwnError | None:
        """Take a line; give the error with its last one."""
        if line.text.startswith("error: "):
            self._open, self._next = OwnError(line.text[7:].strip()), 0
            return None
        if self._open is None:
            return None
        key = _KEYS[self._next]
        head = f"  {key}:"
        if not line.text.startswith(head):
            self._open = None
            return None
        setattr(self._open, key, line.text[len(head) :].strip())
        self._next += 1
        if self._next < len(_KEYS):
            return None
        done, self._open = self._open, None
        return done
