"""Findings of one log, gathered line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from taskpack.launch.codes import EXCEPTIONS_OF_NO_INTEREST, any_code, exception_advice
from taskpack.launch.deaths import Deaths
from taskpack.launch.log_filter import PROGRESS, LogFilter
from taskpack.launch.log_lines import LogLine, blocks, find_time, last_time, open_log, split_lines
from taskpack.launch.own_errors import OwnErrors
from taskpack.launch.signature import Kind, Signature
from taskpack.launch.signatures_npu import NPU_SIGNATURES
from taskpack.launch.signatures_run import RUN_SIGNATURES
from taskpack.launch.tracebacks import Raised, Tracebacks

SIGNATURES = (*NPU_SIGNATURES, *RUN_SIGNATURES)

_GOES_ON = 3
"""Lines of progress after which an error was not the end: each rank may print one more."""

_MOST_FINDINGS = 500
_MOST_RANKS = 4096
_LONGEST = 400
_RANK_ID = re.compile(r"RankID:(\d+)")
_RANK_LINES = 3
"""A code of CANN stands at most so far below the line that names its rank."""

_FILTER = LogFilter(
    [
        *(key.encode() for signature in SIGNATURES for key in signature.keys),
        b"traceback (most recent call last)",
        b"root cause (first observed failure)",
        b"failed (exitcode",
        b"\n  where: ",
    ]
)


@dataclass(slots=True)
class Finding:
    """An error in a log, and the others of the same kind behind it."""

    name: str
    kind: Kind
    text: str
    """As the log says it."""

    file: Path
    line: int
    why: str
    fix: str
    rank: int | None = None
    frame: str = ""
    """Where Python raised it."""

    time: str | None = None
    count: int = 1
    ranks: set[int] = field(default_factory=set)
    progress: int = 0
    """Lines of progress that stand above it."""

    survived: bool = False
    """True when the training made progress after it."""


class LogScan:
    """Reads one log; blocks in which nothing can be are only searched, not split."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deaths = Deaths()
        self.found: dict[str, Finding] = {}
        self.progress = 0
        self.lines = 0
        self.last_text = ""
        self.time: str | None = None
        self._streams: dict[tuple[str, int | None], Tracebacks] = {}
        self._own = OwnErrors()
        self._rank: tuple[int, int] = (-_RANK_LINES, 0)

    def read(self) -> None:
        """Read the log from its beginning to its end.

        Raises:
            HostError: It cannot be read.
        """
        whole = True
        with open_log(self.path) as file:
            for block in blocks(file):
                if self._busy() or _FILTER.may_hold(block):
                    for line in split_lines(block, self.lines + 1):
                        self._feed(line)
                else:
                    self.progress += block.count(PROGRESS)
                    self.time = last_time(block) or self.time
                self.lines += block.count(b"\n")
                self._keep_last(block)
                whole = block.endswith(b"\n")
            # a line that is longer than a block counts once, one without its end counts too
            self.lines += not whole

    def went_on(self, finding: Finding) -> bool:
        """Tell whether the training made progress after an error."""
        return self.progress - finding.progress >= _GOES_ON

    def _busy(self) -> bool:
        streams = any(stream.open or stream.chained for stream in self._streams.values())
        return streams or self.deaths.busy or self._own.busy

    def _feed(self, line: LogLine) -> None:
        self.time = find_time(line.text) or self.time
        if PROGRESS.decode() in line.text:
            self.progress += 1
        self.deaths.feed(line)
        if rank := _RANK_ID.search(line.text):
            self._rank = (line.number, int(rank[1]))
        self._traceback(line)
        if own := self._own.feed(line):
            advice = (own.why, own.fix)
            self._add(self._finding(line, own.what, kind="cause", advice=advice, text=own.what))

    def _traceback(self, line: LogLine) -> None:
        key = (line.tag, line.rank)
        if key not in self._streams:
            if len(self._streams) >= _MOST_RANKS:
                self._streams.clear()
            self._streams[key] = Tracebacks()
        raised = self._streams[key].feed(line)
        signature = _signature(line.text) or (_signature(raised.source) if raised else None)
        if raised is not None and raised.type.endswith(EXCEPTIONS_OF_NO_INTEREST):
            return
        if signature is not None:
            advice = (signature.why, signature.fix)
            finding = self._finding(line, signature.name, kind=signature.kind, advice=advice)
        elif raised is not None:
            advice = exception_advice(raised.type)
            kind: Kind = "symptom" if raised.chained else "cause"
            name = f"{raised.type.rpartition('.')[2]} {raised.own_frame or raised.frame}".strip()
            finding = self._finding(line, name, kind=kind, advice=advice)
        elif code := any_code(line.text):
            finding = self._finding(line, code.name, kind=code.kind, advice=(code.why, code.fix))
        else:
            return
        self._add(_at(finding, raised))

    def _finding(
        self, line: LogLine, name: str, *, kind: Kind, advice: tuple[str, str], text: str = ""
    ) -> Finding:
        shown = (text or line.text).strip()[:_LONGEST]
        finding = Finding(name, kind, shown, self.path, line.number, *advice)
        finding.rank = self._rank_of(line)
        finding.time, finding.progress = self.time, self.progress
        return finding

    def _rank_of(self, line: LogLine) -> int | None:
        if line.rank is not None:
            return line.rank
        if self.deaths.busy and self.deaths.found:
            return self.deaths.found[-1].rank
        named, rank = self._rank
        return rank if line.number - named < _RANK_LINES else None

    def _add(self, finding: Finding) -> None:
        seen = self.found.get(finding.name)
        ranks = {finding.rank} if finding.rank is not None else set()
        if seen is None or self.went_on(seen):
            # what a run survived must not hide the same error at its end
            if seen is not None or len(self.found) < _MOST_FINDINGS:
                self.found[finding.name] = replace(finding, ranks=ranks)
            return
        seen.count += 1
        if len(seen.ranks) < _MOST_RANKS:
            seen.ranks |= ranks
        if seen.rank is None and not seen.frame:
            seen.rank, seen.frame = finding.rank, finding.frame

    def _keep_last(self, block: bytes) -> None:
        words = block[-2048:].decode("utf-8", "replace").split("\n")
        said = [word.strip() for word in words if word.strip()]
        self.last_text = said[-1][-_LONGEST:] if said else self.last_text


def _signature(text: str) -> Signature | None:
    bare = text.strip()
    lowered = bare.lower()
    # CANN's advice names what may be wrong, not what is
    if lowered.startswith(("solution:", "possible cause:")):
        return None
    return next((one for one in SIGNATURES if one.matches(lowered)), None)


def _at(finding: Finding, raised: Raised | None) -> Finding:
    if raised is not None:
        finding.frame = raised.frame
        if raised.own_frame:
            finding.frame += f", called from {raised.own_frame}"
    return finding
