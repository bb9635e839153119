"""Which keys of model.json and data.json a release knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from taskpack.errors import nearest
from taskpack.paths import PACKAGE_DIR
from taskpack.profile.faults import Fault
from taskpack.profile.releases import release_names
from taskpack.profile.yaml_loader import KeyPath, read_yaml


@cache
def _first_releases() -> dict[str, dict[str, str]]:
    """Give, by section, each key and the first release that knows it."""
    path = PACKAGE_DIR / "profile" / "json_keys.yaml"
    sections = read_yaml(path.read_text(encoding="utf-8"), path.name).data
    return {
        section: {key: release for release, keys in by_release.items() for key in keys}
        for section, by_release in sections.items()
    }


def json_faults(file: str, values: Mapping[str, Any], release: str, at: KeyPath) -> Iterator[Fault]:
    """Yield the keys that a release does not read.

    Args:
        file: `model_json` or `data_json`.
        values: The keys, nested as in the file.
        release: Name of the release.
        at: Key of the profile that holds `values`.
    """
    yield from _walk(file, values, release, at)


def _walk(section: str, values: Mapping[str, Any], release: str, at: KeyPath) -> Iterator[Fault]:
    known = _first_releases()[section]
    order = release_names()
    for key, value in values.items():
        name = f"{section}.{key}"
        where = (*at, key)
        since = known.get(key)
        if since is None:
            yield Fault(
                where,
                f"MindSpeed-MM has no key {key} in {section}",
                "a key that is not read silently does nothing, or ends the start",
                nearest(key, known),
            )
        elif order.index(since) > order.index(release):
            yield Fault(
                where,
                f"MindSpeed-MM {release} has no key {key} in {section}",
                f"it came with {since}",
                f"use release {since} or later, or leave the key out",
            )
        elif name in _first_releases():
            if isinstance(value, Mapping):
                yield from _walk(name, value, release, where)
            else:
                yield Fault(
                    where,
                    f"{name} cannot be {value!r}",
                    "it is a group of keys",
                    "give the keys below it",
                )
