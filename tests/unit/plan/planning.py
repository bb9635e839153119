"""Types of the fixtures, and words of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskpack.profile import Profile

Load = Callable[..., Profile]
PlanJson = Callable[..., tuple[int, dict[str, Any]]]


def settings(*overrides: str) -> list[str]:
    """Spell overrides as words of the command line."""
    return [word for item in overrides for word in ("--set", item)]
