"""Which process ended, how, and which one first: what torchrun reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from taskpack.launch.log_lines import LogLine, find_time

_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)"
)
_ROOT = "Root Cause (first observed failure):"
_OTHERS = "Failures:"
_ENTRY = re.compile(r"^\s*\[\d+\]:\s*$")
_FIELD = re.compile(r"^\s+(?P<key>time|host|rank|exitcode)\s*: (?P<value>.*)$")
_RANK = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_CODE = re.compile(r"(-?\d+) \(pid: (\d+)\)")
_END = re.compile(r"^\s*={20,}\s*$")

SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(slots=True)
class Death:
    """A process of torchrun that ended with a failure."""

    line: int
    first: bool
    """True for the one that torchrun saw end first."""

    code: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None
    time: str | None = None

    @property
    def signal(self) -> int | None:
        """The signal that ended it; shells report 128 more than its number."""
        if self.code is None or 0 <= self.code <= 128:
            return None
        number = -self.code if self.code < 0 else self.code - 128
        return number if number in SIGNALS else None


class Deaths:
    """Reads the reports of one log."""

    def __init__(self) -> None:
        self.found: list[Death] = []
        self._first = False
        self._in_report = False

    @property
    def busy(self) -> bool:
        """True within a report, whose lines belong together."""
        return self._in_report

    def feed(self, line: LogLine) -> None:
        """Take a line."""
        text = line.text
        if failed := _FAILED.search(text):
            self._add(Death(line.number, False, int(failed["code"]),
                            local_rank=int(failed["local"]), pid=int(failed["pid"]),
                            time=find_time(text)))  # fmt: skip
        elif text.strip() in (_ROOT, _OTHERS):
            self._in_report, self._first = True, text.strip() == _ROOT
        elif self._in_report:
            self._report(line)

    def first(self) -> Death | None:
        """Give the process that ended first, as far as this log knows."""
        named = [death for death in self.found if death.first]
        return named[-1] if named else (self.found[-1] if self.found else None)

    def _report(self, line: LogLine) -> None:
        if _END.match(line.text):
            self._in_report = False
        elif _ENTRY.match(line.text):
            self._add(Death(line.number, self._first))
        elif self.found and (match := _FIELD.match(line.text)):
            self._fill(self.found[-1], match["key"], match["value"])

    def _fill(self, death: Death, key: str, value: str) -> None:
        if key == "time":
            death.time = find_time(value)
        elif key == "host":
            death.host = value.strip()
        elif key == "rank" and (rank := _RANK.match(value)):
            death.rank, death.local_rank = int(rank[1]), int(rank[2])
        elif key == "exitcode" and (code := _CODE.match(value)):
            death.code, death.pid = int(code[1]), int(code[2])

    def _add(self, death: Death) -> None:
        # a run that was restarted many times leaves many reports; the last ones count
        self.found = [*self.found[-999:], death]
