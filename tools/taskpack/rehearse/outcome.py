"""What a rehearsal found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One script that ran."""

    name: str
    command: str
    seconds: float
    exit_code: int

    @property
    def passed(self) -> bool:
        """Whether it ended well."""
        return self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Check:
    """One property that was tested at the end."""

    name: str
    passed: bool
    detail: str
    """The numbers, and the tolerance with its reason."""


@dataclass(slots=True)
class Outcome:
    """Everything that a rehearsal reports."""

    model: str
    tuning: str
    engine: str
    limits: str
    facts: dict[str, str] = field(default_factory=dict)
    """What was rehearsed: layout, data, widths."""
    steps: list[Step] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every step and every check went well."""
        steps_passed = all(step.passed for step in self.steps)
        return steps_passed and bool(self.checks) and all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain values."""
        return {
            "model": self.model,
            "tuning": self.tuning,
            "passed": self.passed,
            "engine": self.engine,
            "limits": self.limits,
            "facts": self.facts,
            "steps": [
                {"name": s.name, "command": s.command, "seconds": s.seconds, "exit": s.exit_code}
                for s in self.steps
            ],
            "checks": [
                {"name": c.name, "passed": c.passed, "detail": c.detail} for c in self.checks
            ],
            "losses": self.losses,
            "seconds": self.seconds,
        }

    def table(self) -> str:
        """Lay the checks out as lines for a terminal."""
        wrapped = (
            textwrap.fill(check.detail, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
            for check in self.checks
        )
        return "\n".join(
            f"{verdict(check.passed)}  {check.name}\n{detail}"
            for check, detail in zip(self.checks, wrapped, strict=True)
        )


def verdict(passed: bool) -> str:
    """Say PASS or FAIL."""
    return "PASS" if passed else "FAIL"


def thirds(losses: Sequence[float]) -> tuple[float, float]:
    """Give the medians of the first and the last third; single steps are too noisy to compare."""
    size = max(1, len(losses) // 3)
    return _median(losses[:size]), _median(losses[-size:])


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
