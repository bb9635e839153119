"""The plan of a run, laid out for reading."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.plan.memory import GIB, Memory, activations, assumptions
from taskpack.plan.report import CONVERSION_RAM_GIB, Plan
from taskpack.plan.stages import Stage
from taskpack.plan.tables import billions, count, table
from taskpack.profile import Profile
from taskpack.profile.parameters import modules

_MARKS = {"pass": "ok", "note": "note", "fail": "FAIL", "open": "open"}
_BAR = 24
_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "runtime")


def plan_text(plan: Plan) -> str:
    """Lay the plan of a task out."""
    profile = plan.profile
    runs = f"{profile.title}, {profile.tuning.mode}, MindSpeed-MM {profile.release}"
    blocks = (
        [f"{profile.model}: {runs}"],
        list(check_lines(plan)),
        list(_run_lines(plan)),
        ["pipeline, parameters of one copy", *_pipeline(plan)],
        [f"memory of an NPU in GiB, of {plan.hbm // GIB} (estimate)", *_memory(plan)],
        [f"  {line}" for line in (_recompute(profile), *assumptions(profile))],
        _modules(profile),
        list(_disk_lines(plan)),
        ["next", *_steps(plan)],
    )
    return "\n\n".join("\n".join(block) for block in blocks)


def check_lines(plan: Plan) -> Iterator[str]:
    """Word the list of checks, the reasons and fixes of those that did not pass."""
    named = max(len(check.name) for check in plan.checks)
    for check in plan.checks:
        shown = check.what
        if check.status == "open":
            shown = ": ".join(filter(None, (check.what, check.fix)))
        yield f"{_MARKS[check.status]:<4}  {check.name:<{named}}  {shown}"
        if check.status in ("fail", "note"):
            for key in ("where", "why", "fix"):
                if text := getattr(check, key):
                    yield f"        {key + ':':<6} {text}"


def _run_lines(plan: Plan) -> Iterator[str]:
    profile = plan.profile
    parallel, platform, train = profile.parallel, profile.platform, profile.train
    yield (
        f"one copy   TP {parallel.tp} x PP {parallel.pp} x CP {parallel.cp} = "
        f"{profile.model_parallel_size} NPUs"
    )
    yield (
        f"cluster    {platform.nodes} x {platform.npus_per_node} NPUs = {profile.world_size}, "
        f"DP {profile.dp}; whole copies need a multiple of {count(profile.least_nodes, 'node')}"
    )
    yield (
        f"step       micro {profile.batch.micro} x accumulation {profile.accumulation} x DP "
        f"{profile.dp} = {profile.global_batch} samples, at most "
        f"{profile.global_batch * train.seq_length:,} tokens"
    )
    yield f"run        {train.iters:,} steps, saved every {train.save_interval:,}"
    if plan.rows:
        per_epoch = plan.steps_per_epoch or 0
        yield (
            f"epoch      {plan.rows:,} rows are {per_epoch:,.1f} steps; the run is "
            f"{train.iters / per_epoch:,.1f} epochs"
        )


def _pipeline(plan: Plan) -> list[str]:
    virtual = plan.profile.parallel.vpp > 1
    rows = [
        [
            str(stage.stage),
            *([str(stage.virtual_stage)] if virtual else []),
            str(stage.vision_layers),
            str(stage.text_layers),
            billions(stage.size.total),
            billions(stage.trained.total) if stage.trained.total else "0",
            holds(stage),
        ]
        for stage in plan.stages
    ]
    head = ["stage", *(["virtual"] if virtual else []), "vision", "text", "parameters"]
    head += ["trainable", "holds"]
    return table([head, *rows], right=range(len(head) - 1))


def holds(stage: Stage) -> str:
    """Name the parts of a stage in the order that data takes."""
    named = [
        ("patches", stage.patches),
        (_layers("vision", stage.first_vision_layer, stage.vision_layers), stage.vision_layers),
        ("projector", stage.projector),
        ("embedding", stage.embedding),
        (_layers("text", stage.first_text_layer, stage.text_layers), stage.text_layers),
        ("head", stage.head),
    ]
    return " > ".join(name for name, there in named if there)


def _layers(kind: str, first: int, layers: int) -> str:
    return f"{kind} {first}" + (f"-{first + layers - 1}" if layers > 1 else "")


def _memory(plan: Plan) -> list[str]:
    rows = [
        [
            str(stage),
            *(f"{getattr(found, part) / GIB:.1f}" for part in _PARTS),
            f"{found.total / GIB:.1f}",
            f"{found.low / GIB:.1f} to {found.high / GIB:.1f}",
            _bar(found, plan.hbm),
        ]
        for stage, found in enumerate(plan.memory)
    ]
    head = ["stage", *_PARTS, "total", "band", "share of the NPU"]
    return table([head, *rows], right=range(len(head) - 2))


def _recompute(profile: Profile) -> str:
    most = {mode: max(stages) / GIB for mode, stages in activations(profile).items()}
    return (
        f"activations of the fullest stage: {most['none']:.1f} GiB, {most['full']:.1f} with "
        "recompute full"
    )


def _bar(found: Memory, hbm: int) -> str:
    """Draw the estimate as `#`, the rest of the band as `-`, and the end of the NPU as `|`."""
    filled, most = (round(_BAR * size / hbm) for size in (found.total, found.high))
    bar = "#" * filled + "-" * (most - filled)
    return f"{bar[:_BAR]:<{_BAR}}|{bar[_BAR : 2 * _BAR]}"


def _modules(profile: Profile) -> list[str]:
    made = modules(profile, profile.tuning.mode)
    total = sum(module.parameters for module in made)
    trained = sum(module.trainable for module in made)
    rows = [(m.name, f"{m.parameters:,}", f"{m.trainable:,}", m.how) for m in made]
    rows.append(("all", f"{total:,}", f"{trained:,}", f"{trained / total:.3%} trains"))
    return table([("module", "parameters", "trainable", "how"), *rows], right={1, 2})


def _disk_lines(plan: Plan) -> Iterator[str]:
    sizes = plan.volumes
    yield (
        f"disk       weights {_gib(sizes.hf)}, converted {_gib(sizes.converted)} (largest rank "
        f"file {_gib(sizes.largest_rank_file)})"
    )
    yield (
        f"           checkpoint {_gib(sizes.checkpoint)}, {sizes.saves} of them {_gib(sizes.run)}"
        f"{'' if plan.profile.resume.optimizer else ', without optimizer state'}"
    )
    yield (
        f"convert    needs both folders on disk, and less than {CONVERSION_RAM_GIB} GiB of memory"
    )


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"


def _steps(plan: Plan) -> list[str]:
    return [f"  {line}" for step in plan.steps for line in (f"# {step.does}", step.command)]
