"""A rule, broken and just kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Overrides, parted by `; `, that break one rule, and the nearest ones that do not."""

    bad: str
    what: str
    fix: str
    edge: str
    model: str = "qwen2.5vl-7b"
    code: int = 2
