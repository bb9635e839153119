"""Every rule between the keys of a profile."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.profile import rules_layout, rules_run, rules_variants
from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile
from taskpack.profile.rules import Rule


def rules() -> tuple[Rule, ...]:
    """List the rules."""
    return (*rules_layout.RULES, *rules_run.RULES, *rules_variants.RULES)


def check_profile(profile: Profile) -> Iterator[Fault]:
    """Yield every broken rule; sections that `profile` lacks are passed over."""
    for rule in rules():
        yield from rule(profile)
