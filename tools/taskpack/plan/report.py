"""The whole plan of a run, gathered once and shown as text or as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.plan.check_run import (
    check_cluster,
    check_media,
    check_memory,
    check_saving,
    check_tuning,
)
from taskpack.plan.check_settings import check_loader, check_resume
from taskpack.plan.commands import Step, next_steps
from taskpack.plan.findings import Check
from taskpack.plan.memory import Memory, activations, assumptions, hbm_bytes, memory
from taskpack.plan.stages import Stage, stages
from taskpack.plan.volumes import Volumes, volumes
from taskpack.profile import Profile
from taskpack.profile.parameters import modules

CONVERSION_RAM_GIB = 0.25
"""Memory that a conversion stays below, whatever the model: each thread has one small buffer.

Measured: 54 MiB for 4 and for 7 GiB of weights.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a plan is held against, beside the profile."""

    hf: Path | None = None
    mm: Path | None = None
    data: tuple[Path, ...] = ()
    hbm_gib: int | None = None
    """Memory of an NPU; None takes that of its generation."""

    overrides: Sequence[str] = ()
    """Values of the profile that the command line replaced."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run amounts to, and what of it is proved."""

    profile: Profile
    stages: list[Stage]
    memory: list[Memory]
    hbm: int
    volumes: Volumes
    checks: list[Check]
    steps: list[Step]
    rows: int | None
    """Rows that training reads; None when no data file was given."""

    @property
    def failed(self) -> bool:
        """True when a check found what would stop or spoil the run."""
        return any(check.status == "fail" for check in self.checks)

    @property
    def steps_per_epoch(self) -> float | None:
        """Steps that see every row once."""
        return None if self.rows is None else self.rows / self.profile.global_batch


def make_plan(profile: Profile, given: Given | None = None) -> Plan:
    """Plan a run and check it against all that is given."""
    given = given or Given()
    found, sizes, hbm = memory(profile), volumes(profile), hbm_bytes(profile, given.hbm_gib)
    files, rows = _check_files(profile, given)
    checks = [
        *check_cluster(profile),
        *check_media(profile),
        *files,
        *check_memory(profile, found, hbm),
        *check_saving(profile, sizes),
        *check_tuning(profile),
        *check_loader(profile),
        *check_resume(profile),
    ]
    steps = next_steps(profile, hf=given.hf, mm=given.mm, overrides=given.overrides)
    return Plan(profile, stages(profile), found, hbm, sizes, checks, steps, rows)


def _check_files(profile: Profile, given: Given) -> tuple[list[Check], int | None]:
    """Check what was named, and say what was not; its readers are imported when needed."""
    checks: list[Check] = []
    rows = None
    if given.hf is not None:
        from taskpack.plan.check_weights import check_hf

        checks += check_hf(profile, given.hf)
    if given.mm is not None:
        from taskpack.plan.check_weights import check_mm

        checks += check_mm(profile, given.mm)
    if given.data:
        from taskpack.plan.check_data import check_data, used_rows

        found, counted = check_data(profile, given.data)
        checks += found
        rows = used_rows(profile, counted) if counted is not None else None
    for option, path in (
        ("--hf DIR", given.hf),
        ("--mm DIR", given.mm),
        ("--data FILE", given.data),
    ):
        if not path:
            checks.append(Check(option.split()[0], "open", "not looked at", fix=f"give {option}"))
    return checks, rows


def plan_json(plan: Plan) -> dict[str, Any]:
    """Gather the plan of a task as plain data. Sizes are bytes."""
    profile = plan.profile
    parallel, platform = profile.parallel, profile.platform
    return {
        "model": profile.model,
        "title": profile.title,
        "release": profile.release,
        "tuning": profile.tuning.mode,
        "passed": not plan.failed,
        "checks": [check.to_json() for check in plan.checks],
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
        "rows": plan.rows,
        "steps_per_epoch": plan.steps_per_epoch,
        "needs_dummy_optimizer": profile.needs_dummy_optimizer,
        "stages": [stage_json(stage) for stage in plan.stages],
        "memory": [found.to_json() for found in plan.memory],
        "activations": activations(profile),
        "hbm": plan.hbm,
        "assumptions": assumptions(profile),
        "disk": plan.volumes.to_json(),
        "modules": [
            {
                "name": module.name,
                "parameters": module.parameters,
                "trainable": module.trainable,
                "how": module.how,
            }
            for module in modules(profile, profile.tuning.mode)
        ],
        "next": [step.to_json() for step in plan.steps],
    }


def stage_json(stage: Stage) -> dict[str, Any]:
    """Give a stage as plain data."""
    return {
        "stage": stage.stage,
        "virtual_stage": stage.virtual_stage,
        "vision_layers": stage.vision_layers,
        "text_layers": stage.text_layers,
        "patch_embedding": stage.patches,
        "projector": stage.projector,
        "embedding": stage.embedding,
        "head": stage.head,
        "parameters": stage.size.total,
        "trainable": stage.trained.total,
    }
