"""Python tracebacks in a log, also where those of several ranks are interleaved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from taskpack.launch.log_lines import LogLine

_START = re.compile(r"^(?P<indent>\s*)(?:traceback : )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(
    r'^(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?'
)
_RAISED = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
    r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|Stop|Died|Iteration))"
    r"(?::\s?(?P<message>.*))?$"
)
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_PATIENCE = 400
"""Lines without a word of a traceback after which it counts as cut off."""

_OWN_CODE = re.compile(r"site-packages/|dist-packages/|/lib/python3|<frozen|<string>")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a traceback ends with."""

    type: str
    message: str
    started: int
    """Line of the word Traceback."""

    frame: str
    """Where it was raised: `file.py:12 in name`; empty when no frame was seen."""

    own_frame: str
    """The last frame outside of installed packages; empty when that is `frame` or there is none."""

    source: str
    """The source line of the last frame."""

    chained: bool
    """True when another exception led to it."""


@dataclass(slots=True)
class _Open:
    started: int
    base: str
    chained: bool
    last: int
    frame: str = ""
    own_frame: str = ""
    source: str = ""
    after_frame: bool = False


@dataclass(slots=True)
class Tracebacks:
    """Assembles the tracebacks of one stream: the lines with the same prefix.

    Ranks without a prefix share a stream, so several may be open at once; they mostly say the
    same, and each exception line closes the one that was opened first.
    """

    open: list[_Open] = field(default_factory=list)
    chained: bool = False

    def feed(self, line: LogLine) -> Raised | None:
        """Take a line; give the exception when a traceback ends with it."""
        self.open = [one for one in self.open if line.number - one.last < _PATIENCE]
        if start := _START.match(line.text):
            indent = start["indent"] if "traceback :" not in line.text else start["indent"] + "  "
            self.open.append(_Open(line.number, indent, self.chained, line.number))
            self.chained = False
            return None
        if line.text.strip() in _CHAINED:
            self.chained = True
            return None
        return self._inside(line) if self.open else None

    def _inside(self, line: LogLine) -> Raised | None:
        latest = self.open[-1]
        if frame := _FRAME.match(line.text):
            latest.base = frame["indent"][:-2]
            latest.last, latest.after_frame = line.number, True
            latest.frame = f"{frame['file']}:{frame['line']}"
            if frame["name"]:
                latest.frame += f" in {frame['name']}"
            if not _OWN_CODE.search(frame["file"]):
                latest.own_frame = latest.frame
            return None
        if latest.after_frame and line.text.startswith(latest.base + "    "):
            latest.source, latest.after_frame = line.text.strip(), False
            return None
        for index, one in enumerate(self.open):
            if line.text.startswith(one.base) and (
                found := _RAISED.match(line.text[len(one.base) :])
            ):
                del self.open[index]
                # interleaved frames all land on the latest; the first one closes with its words
                seen = one if one.frame else latest
                return Raised(
                    type=found["type"],
                    message=(found["message"] or "").strip(),
                    started=one.started,
                    frame=seen.frame,
                    own_frame=seen.own_frame if seen.own_frame != seen.frame else "",
                    source=seen.source,
                    chained=one.chained,
                )
        return None
