"""An explanation, laid out for reading and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskpack.launch.explain import Explanation, called
from taskpack.launch.line import plain
from taskpack.launch.log_scan import Finding
from taskpack.plan.tables import count

_MOST_OTHERS = 12
_HINTS = {"cause": "cause", "symptom": "follows", "wrapper": "wraps"}


def explanation_text(found: Explanation) -> str:
    """Lay an explanation out."""
    if not found.findings:
        return "\n".join(_nothing(found))
    first = found.findings[0]
    who = f"rank {first.rank}: " if first.rank is not None else ""
    lines = [
        f"first error: {who}{plain(first.text)}",
        f"  where: {first.file}:{first.line}" + (f" ({first.frame})" if first.frame else ""),
        f"  why:   {first.why}",
        f"  fix:   {first.fix}",
    ]
    if note := _note(first):
        lines.append(f"  note:  {note}")
    if found.death is not None:
        lines += ["", _death(found)]
    others = found.findings[1:]
    if others:
        lines += ["", "also in the logs:"]
        lines += [f"  {_short(finding)}" for finding in others[:_MOST_OTHERS]]
        if len(others) > _MOST_OTHERS:
            lines.append(f"  and {len(others) - _MOST_OTHERS} more kinds")
    return "\n".join(lines)


def explanation_json(found: Explanation) -> dict[str, Any]:
    """Gather an explanation as plain data."""
    death = found.death
    return {
        "found": bool(found.findings),
        "first": _finding_json(found.findings[0]) if found.findings else None,
        "others": [_finding_json(finding) for finding in found.findings[1:]],
        "died_first": None
        if death is None
        else {
            "rank": death.rank,
            "local_rank": death.local_rank,
            "pid": death.pid,
            "host": death.host,
            "time": death.time,
            "exit_code": death.code,
            "signal": death.signal,
            "first_observed": death.first,
        },
        "logs": [{"file": str(scan.path), "lines": scan.lines} for scan in found.scans],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "kind": finding.kind,
        "text": finding.text,
        "file": str(finding.file),
        "line": finding.line,
        "rank": finding.rank,
        "frame": finding.frame,
        "time": finding.time,
        "count": finding.count,
        "ranks": sorted(finding.ranks),
        "survived": finding.survived,
        "why": finding.why,
        "fix": finding.fix,
    }


def _nothing(found: Explanation) -> Iterator[str]:
    yield "no error that is known"
    for scan in found.scans:
        yield f"  {scan.path}: {count(scan.lines, 'line')}, the last: {plain(scan.last_text)}"
    yield (
        "A log that simply stops was cut off with its node or container: look at the other nodes' "
        "logs, and at the platform's events."
    )


def _note(first: Finding) -> str:
    if first.survived:
        return "the training went on after it"
    if first.kind != "cause":
        return (
            "this follows from another fault, which these logs do not show; add the logs of all "
            "nodes"
        )
    return ""


def _death(found: Explanation) -> str:
    death = found.death
    assert death is not None
    place = f" on {death.host}" if death.host else ""
    when = f" at {death.time}" if death.time else ""
    sure = "died first" if death.first else "died"
    return f"{sure}: {called(death)}{place}{when}, exit code {death.code}"


def _short(finding: Finding) -> str:
    times = f" x {finding.count}" if finding.count > 1 else ""
    ranks = f", ranks {_ranges(sorted(finding.ranks))}" if finding.ranks else ""
    place = f"{finding.file.name}:{finding.line}"
    return f"{_HINTS[finding.kind]:<8}{finding.name}{times}{ranks}  {place}"


def _ranges(numbers: list[int]) -> str:
    """Write sorted numbers as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
