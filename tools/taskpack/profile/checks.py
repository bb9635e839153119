"""Rules between the keys of a profile."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile


def check_profile(profile: Profile) -> Iterator[Fault]:
    """Yield every broken rule."""
    yield from ()
