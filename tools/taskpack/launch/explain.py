"""Why a run ended: the first real error of its logs, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.launch.deaths import SIGNALS, Death
from taskpack.launch.log_scan import Finding, LogScan
from taskpack.launch.signature import STRENGTH, Kind

_SIGNALS: dict[int, tuple[Kind, str, str]] = {
    9: (
        "cause",
        "SIGKILL comes from outside: mostly the kernel, because memory of the host or of the "
        "container ran out",
        "look for 'Killed process' in the host's dmesg or OOMKilled in the pod's state; lower "
        "data.loader_workers and data.workers, or raise the container's memory limit",
    ),
    7: (
        "cause",
        "SIGBUS: memory behind a file went away, mostly because /dev/shm is full",
        "start the container with --ipc=host or a larger --shm-size",
    ),
    11: (
        "cause",
        "SIGSEGV: native code crashed; often versions of torch, torch_npu and CANN do not fit",
        "taskpack doctor --task TASK compares them; PYTHONFAULTHANDLER=1 shows where",
    ),
    4: (
        "cause",
        "SIGILL: a library was built for another processor",
        "install wheels for this machine's architecture",
    ),
    6: (
        "symptom",
        "SIGABRT: native code gave up; its last words stand above",
        "read what this rank printed before, and the plog folder (~/ascend/log)",
    ),
    15: (
        "wrapper",
        "SIGTERM: the platform, a user or another node's launcher ended the run",
        "look at the other nodes' logs and the platform's events",
    ),
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the logs of a run say."""

    findings: tuple[Finding, ...]
    """The first real error first, then all others; empty when nothing is known."""

    death: Death | None
    """The process that ended first, as torchrun saw it."""

    scans: tuple[LogScan, ...]


def explain(paths: Sequence[Path]) -> Explanation:
    """Read the logs of one run, one or several for each node.

    Raises:
        HostError: A log cannot be read.
    """
    scans = [LogScan(path) for path in paths]
    for scan in scans:
        scan.read()
    death = _first_death(scans)
    found = [(scan, finding) for scan in scans for finding in scan.found.values()]
    for scan in scans:
        found += [(scan, finding) for finding in _of_death(scan)]
    for scan, finding in found:
        finding.survived = scan.went_on(finding)
    timed = all(finding.time for _, finding in found)

    def order(pair: tuple[LogScan, Finding]) -> tuple[Any, ...]:
        scan, finding = pair
        place = finding.time if timed and len(scans) > 1 else ""
        return (
            finding.survived,
            -STRENGTH[finding.kind],
            place,
            scans.index(scan),
            finding.line,
        )

    return Explanation(
        tuple(finding for _, finding in sorted(found, key=order)), death, tuple(scans)
    )


def _first_death(scans: Sequence[LogScan]) -> Death | None:
    deaths = [death for scan in scans if (death := scan.deaths.first()) is not None]
    if all(death.time for death in deaths):
        deaths.sort(key=lambda death: (not death.first, death.time or ""))
    return deaths[0] if deaths else None


def _of_death(scan: LogScan) -> list[Finding]:
    """Turn a death by a signal into a finding: such a process had no chance to say anything."""
    death = scan.deaths.first()
    if death is None or death.signal is None:
        return []
    kind, why, fix = _SIGNALS[death.signal]
    name = SIGNALS[death.signal]
    return [
        Finding(
            f"ended by {name}",
            kind,
            f"{called(death)} was ended by {name} (exit code {death.code})",
            scan.path,
            death.line,
            why,
            fix,
            rank=death.rank,
            time=death.time,
            ranks={death.rank} if death.rank is not None else set(),
            progress=scan.progress,
        )
    ]


def called(death: Death) -> str:
    """Name a process as exactly as the log does."""
    if death.rank is not None:
        name = f"rank {death.rank}"
    elif death.local_rank is not None:
        name = f"local rank {death.local_rank}"
    else:
        name = "a rank"
    return name + (f" (pid {death.pid})" if death.pid is not None else "")
