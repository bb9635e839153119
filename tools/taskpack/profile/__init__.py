"""Profiles: YAML to frozen, checked models. Derived values are properties."""

from taskpack.profile.load import load_profile, parse_profile, profile_from_dict
from taskpack.profile.model import Profile, to_yaml
from taskpack.profile.releases import FlagSpec, Release, known_flags, load_release, release_names

__all__ = [
    "FlagSpec",
    "Profile",
    "Release",
    "known_flags",
    "load_profile",
    "load_release",
    "parse_profile",
    "profile_from_dict",
    "release_names",
    "to_yaml",
]
