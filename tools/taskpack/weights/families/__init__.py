"""The families: one table each, and no other place that knows a tensor's name."""

from __future__ import annotations

from taskpack.errors import ProfileError, nearest
from taskpack.weights.families.qwen2_5_vl import QWEN2_5_VL
from taskpack.weights.families.qwen2_vl import QWEN2_VL
from taskpack.weights.families.qwen3_vl import QWEN3_VL, QWEN3_VL_MOE
from taskpack.weights.rows import Family

FAMILIES: dict[str, Family] = {
    family.name: family for family in (QWEN2_5_VL, QWEN2_VL, QWEN3_VL, QWEN3_VL_MOE)
}


def family_named(name: str, *, where: str) -> Family:
    """Find a family by its name in a profile or layout.

    Raises:
        ProfileError: There is no such family.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    raise ProfileError(
        f"no family is called {name!r}",
        where=where,
        why="a family has one table of tensor names",
        fix=nearest(name, FAMILIES),
    )
