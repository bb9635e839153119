"""The list of tasks: how large they are, and what they need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from taskpack.plan.tables import table
from taskpack.profile import Profile
from taskpack.profile.parameters import modules
from taskpack.profile.releases import releases_of


def models_json(profiles: Iterable[Profile]) -> list[dict[str, Any]]:
    """List tasks with their size and what they need."""
    return [
        {
            "model": profile.model,
            "parameters": sum(m.parameters for m in modules(profile, "full")),
            "tp": profile.parallel.tp,
            "pp": profile.parallel.pp,
            "cp": profile.parallel.cp,
            "least_npus": profile.model_parallel_size,
            "nodes": profile.platform.nodes,
            "npus_per_node": profile.platform.npus_per_node,
            "tuning": profile.tuning.mode,
            "release": profile.release,
            "releases": list(releases_of(profile.family)),
        }
        for profile in sorted(profiles, key=_family_and_size)
    ]


def _family_and_size(profile: Profile) -> tuple[str, int]:
    return profile.family, sum(module.parameters for module in modules(profile, "full"))


def models_text(profiles: Iterable[Profile]) -> str:
    """Lay the list of tasks out for reading."""
    rows = [
        (
            str(row["model"]),
            f"{row['parameters'] / 1e9:.1f} B",
            f"TP{row['tp']} PP{row['pp']} CP{row['cp']}",
            str(row["least_npus"]),
            f"{row['nodes']} x {row['npus_per_node']}",
            str(row["tuning"]),
            str(row["release"]),
            f"{row['releases'][0]} to {row['releases'][-1]}",
        )
        for row in models_json(profiles)
    ]
    head = (
        "task",
        "parameters",
        "layout",
        "least NPUs",
        "cluster",
        "tuning",
        "MindSpeed-MM",
        "known",
    )
    return "\n".join(table([head, *rows], right={1, 3}))
