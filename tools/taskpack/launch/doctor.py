"""Look at a machine, and lay out what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from taskpack.launch.case import Case
from taskpack.launch.checks.devices import check_devices
from taskpack.launch.checks.links import check_links
from taskpack.launch.checks.machine import (
    check_disk,
    check_limits,
    check_memory,
    check_scripts,
    check_shm,
)
from taskpack.launch.checks.network import check_network, check_ports
from taskpack.launch.checks.nodes import check_nodes
from taskpack.launch.checks.npus import check_npus
from taskpack.launch.checks.software import check_cann, check_driver, check_python
from taskpack.launch.checks.task import check_task
from taskpack.launch.line import Line, Status, plain, warn

_CHECKS: tuple[Callable[[Case], Iterator[Line]], ...] = (
    check_devices,
    check_npus,
    check_driver,
    check_cann,
    check_scripts,
    check_python,
    check_memory,
    check_shm,
    check_limits,
    check_disk,
    check_links,
    check_network,
    check_ports,
    check_nodes,
    check_task,
)
_MARKS: Mapping[Status, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL"}


def examine(case: Case) -> list[Line]:
    """Run every check; one that the system stops becomes a warning."""
    lines: list[Line] = []
    for check in _CHECKS:
        try:
            lines += check(case)
        except OSError as error:
            lines.append(
                warn(
                    check.__name__.removeprefix("check_"),
                    f"could not be looked at: {error.strerror or error}",
                    where=str(error.filename or "this machine"),
                    why="the system refused",
                    fix="run doctor as the user that trains, or as root",
                )
            )
    return lines


def failed(lines: Sequence[Line]) -> bool:
    """Tell whether something would stop or spoil a run."""
    return any(line.status == "fail" for line in lines)


def doctor_text(lines: Sequence[Line]) -> str:
    """Lay the lines out for reading: what does not hold comes with its reason and its fix."""
    width = max(len(line.name) for line in lines)
    shown = []
    for line in lines:
        shown.append(f"{_MARKS[line.status]:<4}  {line.name:<{width}}  {line.what}")
        if line.status != "ok":
            parts = (("where", line.where), ("why", line.why), ("fix", line.fix))
            shown += [f"        {key + ':':<6} {text}" for key, text in parts if text]
    counts = Counter(line.status for line in lines)
    shown.append("")
    shown.append(", ".join(f"{counts[status]} {status}" for status in _MARKS))
    return "\n".join(plain(line) for line in shown)


def doctor_json(case: Case, lines: Sequence[Line]) -> dict[str, Any]:
    """Gather the lines as plain data."""
    counts = Counter(line.status for line in lines)
    return {
        "passed": not failed(lines),
        "task": case.profile.model if case.profile else None,
        "release": case.profile.release if case.profile else None,
        "counts": {status: counts[status] for status in _MARKS},
        "lines": [line.to_json() for line in lines],
    }
