"""What the examples that each release ships set: flags, environment and json files.

`shipped.json` holds, by family and section, for every name its values; behind a value stand the
examples that have it, as `size` or `size@release,release`, and no example at all where every one
has it. A flag without value is null, and one that the script computes is `computed`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from taskpack.errors import ProfileError
from taskpack.paths import PACKAGE_DIR

SECTIONS = ("settings", "environment", "flags", "model_json", "data_json", "fsdp2_config")

Example = Mapping[str, Mapping[str, Any]]


@cache
def _families() -> dict[str, dict[str, Any]]:
    path = PACKAGE_DIR / "profile" / "shipped.json"
    families: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return families


def example_names(family: str) -> Mapping[str, tuple[str, ...]]:
    """List the examples of a family, each with the releases that ship it, oldest first."""
    examples = _families()[family]["examples"]
    return {name: tuple(releases) for name, releases in examples.items()}


def load_example(family: str, name: str, release: str) -> Example:
    """Give what an example sets, by section and name.

    Raises:
        ProfileError: The release ships no such example.
    """
    releases = example_names(family).get(name, ())
    if release not in releases:
        raise ProfileError(
            f"MindSpeed-MM {release} ships no example {name} of {family}",
            where=f"release {release}",
            why="there is nothing to compare with",
            fix="use release " + ", ".join(releases) if releases else "compare another size",
        )
    return {section: dict(_values(family, section, name, release)) for section in SECTIONS}


def _values(family: str, section: str, name: str, release: str) -> Iterator[tuple[str, Any]]:
    rows: Mapping[str, list[list[Any]]] = _families()[family][section]
    for key, values in rows.items():
        for value, *holders in values:
            if not holders or any(_holds(holder, name, release) for holder in holders):
                yield key, value
                break


def _holds(holder: str, name: str, release: str) -> bool:
    size, _, releases = holder.partition("@")
    return size == name and (not releases or release in releases.split(","))
