"""What a profile amounts to: stages, batch, and what trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from taskpack.profile.model import Profile
from taskpack.profile.parameters import modules
from taskpack.profile.releases import releases_of


def plan_json(profile: Profile) -> dict[str, Any]:
    """Gather the plan of a task as plain data."""
    parallel, platform = profile.parallel, profile.platform
    return {
        "model": profile.model,
        "title": profile.title,
        "release": profile.release,
        "tuning": profile.tuning.mode,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "vpp": parallel.vpp,
        "cp": parallel.cp,
        "dp": profile.dp,
        "nodes": platform.nodes,
        "npus_per_node": platform.npus_per_node,
        "world_size": profile.world_size,
        "model_parallel_size": profile.model_parallel_size,
        "least_nodes": profile.least_nodes,
        "micro_batch": profile.batch.micro,
        "accumulation": profile.accumulation,
        "global_batch": profile.global_batch,
        "most_tokens_per_step": profile.global_batch * profile.train.seq_length,
        "needs_dummy_optimizer": profile.needs_dummy_optimizer,
        "stages": _stages(profile),
        "modules": [
            {
                "name": module.name,
                "parameters": module.parameters,
                "trainable": module.trainable,
                "how": module.how,
            }
            for module in modules(profile, profile.tuning.mode)
        ],
    }


def plan_text(profile: Profile) -> str:
    """Lay the plan of a task out for reading."""
    facts = plan_json(profile)
    lines = [
        f"{profile.model}: {profile.title}, {profile.tuning.mode}, MindSpeed-MM {profile.release}",
        "",
        f"one copy   TP {facts['tp']} x PP {facts['pp']} x CP {facts['cp']} = "
        f"{facts['model_parallel_size']} NPUs",
        f"cluster    {facts['nodes']} x {facts['npus_per_node']} NPUs = {facts['world_size']}, "
        f"DP {facts['dp']}; whole copies need a multiple of {_count(facts['least_nodes'], 'node')}",
        f"step       micro {facts['micro_batch']} x accumulation {facts['accumulation']} x DP "
        f"{facts['dp']} = {facts['global_batch']} samples, at most "
        f"{facts['most_tokens_per_step']:,} tokens",
        f"run        {profile.train.iters:,} steps, saved every {profile.train.save_interval:,}",
        "",
        *_stage_table(facts["stages"], virtual=facts["vpp"] > 1),
        "",
        *_module_table(facts["modules"]),
    ]
    if profile.frozen_stages:
        stages = ", ".join(map(str, profile.frozen_stages))
        lines += ["", f"stage {stages} trains nothing: --enable-dummy-optimizer is passed"]
    return "\n".join(lines)


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
    return "\n".join(_table([head, *rows], right={1, 3}))


def _stages(profile: Profile) -> list[dict[str, int]]:
    text, vision = profile.parallel.text.counts(), profile.parallel.vision.counts()
    return [
        {"stage": stage, "virtual_stage": virtual, "vision_layers": seeing, "text_layers": reading}
        for (stage, virtual, reading), (_, _, seeing) in zip(text, vision, strict=True)
    ]


def _stage_table(stages: Sequence[dict[str, int]], *, virtual: bool) -> list[str]:
    keys = ["stage", *(["virtual_stage"] if virtual else []), "vision_layers", "text_layers"]
    head = [key.replace("_", " ") for key in keys]
    rows = [[str(stage[key]) for key in keys] for stage in stages]
    return _table([head, *rows], right=set(range(len(keys))))


def _module_table(parts: Sequence[dict[str, Any]]) -> list[str]:
    total = {
        "name": "all",
        "parameters": sum(part["parameters"] for part in parts),
        "trainable": sum(part["trainable"] for part in parts),
    }
    total["how"] = f"{total['trainable'] / total['parameters']:.3%} trains"
    rows = [
        (part["name"], f"{part['parameters']:,}", f"{part['trainable']:,}", part["how"])
        for part in (*parts, total)
    ]
    return _table([("module", "parameters", "trainable", "how"), *rows], right={1, 2})


def _table(rows: Sequence[Sequence[str]], *, right: set[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")
