"""How a rule between keys is written.

A rule names the sections that it reads and runs only when these are sound, so one misspelt key
does not hide the other faults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile

Rule = Callable[[Profile], Iterator[Fault]]


def rule(*sections: str) -> Callable[[Rule], Rule]:
    """Skip a rule when the profile lacks one of the sections that it reads."""

    def guard(check: Rule) -> Rule:
        @functools.wraps(check)
        def when_sound(profile: Profile) -> Iterator[Fault]:
            if all(hasattr(profile, section) for section in sections):
                yield from check(profile)

        return when_sound

    return guard


def choices(values: list[int]) -> str:
    """Word a list of values that would work: `use 1, 2 or 4`."""
    texts = [str(value) for value in values]
    if len(texts) < 2:
        return f"use {''.join(texts)}"
    return f"use {', '.join(texts[:-1])} or {texts[-1]}"


def divisors(*numbers: int) -> list[int]:
    """List what divides all of some positive numbers."""
    return [n for n in range(1, min(numbers) + 1) if all(number % n == 0 for number in numbers)]
