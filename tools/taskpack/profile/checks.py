"""Rules between the keys of a profile.

Each rule names the sections that it reads and runs only when these are sound, so one misspelt
key does not hide the other faults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile

Rule = Callable[[Profile], Iterator[Fault]]

_RULES: list[Rule] = []


def rule(*sections: str) -> Callable[[Rule], Rule]:
    """Register a rule that needs these sections of the profile."""

    def register(check: Rule) -> Rule:
        @functools.wraps(check)
        def when_sound(profile: Profile) -> Iterator[Fault]:
            if all(hasattr(profile, section) for section in sections):
                yield from check(profile)

        _RULES.append(when_sound)
        return when_sound

    return register


def check_profile(profile: Profile) -> Iterator[Fault]:
    """Yield every broken rule; sections that `profile` lacks are passed over."""
    # the modules register their rules when they are imported
    from taskpack.profile import rules_layout, rules_run  # noqa: F401

    for check in _RULES:
        yield from check(profile)


def choices(values: list[int]) -> str:
    """Word a list of values that would work: `use 1, 2 or 4`."""
    texts = [str(value) for value in values]
    if len(texts) < 2:
        return f"use {''.join(texts)}"
    return f"use {', '.join(texts[:-1])} or {texts[-1]}"


def divisors(*numbers: int) -> list[int]:
    """List what divides all of some positive numbers."""
    return [n for n in range(1, min(numbers) + 1) if all(number % n == 0 for number in numbers)]
