"""What templates may use: the profile, and everything that follows from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from taskpack import __version__
from taskpack.profile import Profile, Release
from taskpack.profile.checks import check_profile
from taskpack.profile.faults import Fault
from taskpack.profile.parameters import modules
from taskpack.render.cluster import describe_cluster
from taskpack.render.engine import number
from taskpack.render.environment import meaning
from taskpack.render.flags import argument_groups, lora_arguments, restarted

HEADER_MARK = "Edit that file, then run: make render"

# What launch_all.sh says to each node itself, and what it hands over besides settings.
_OF_ALL_NODES = frozenset(("NNODES", "STOP_WITH_STDIN", "RESTART_FROM"))
_ALSO_HANDED_OVER = frozenset(
    (
        "PATH",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "GLOBAL_BATCH_SIZE",
        "HCCL_SOCKET_IFNAME",
        "HCCL_SOCKET_FAMILY",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
    )
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable of a script: its value as one shell word, and what it means."""

    name: str
    value: str
    comment: str

    @classmethod
    def of(cls, name: str, value: str | int | float, comment: str) -> Setting:
        """Write the value as a shell would take it inside double quotes."""
        return cls(name, value if isinstance(value, str) else number(value), comment)


def task_context(profile: Profile, release: Release) -> dict[str, Any]:
    """Gather the names that templates of a task may use.

    Raises:
        ProfileError: The release does not know a flag that the profile asks for.
    """
    settings, variables = _settings(profile), _environment(profile)
    return {
        "profile": profile,
        "release": release,
        "family": profile.family_facts,
        "header": task_header(profile.model),
        "settings": settings,
        "environment": variables,
        "cluster": describe_cluster(profile),
        "handed_over": _handed_over(*settings, *variables),
        "argument_groups": argument_groups(profile, release),
        "lora_arguments": lora_arguments(profile, release),
        **_restart(profile, release),
        "layout_lines": layout_lines(profile),
        "vision_model_id": _vision_model_id(profile, release),
        "bridged": profile.hf.online and profile.resume.iteration is None,
        "view": isinstance(profile.resume.iteration, int),
        "no_lora": _no_lora(profile),
        "trainable": {mode: trainable_table(profile, mode) for mode in ("lora", "full")},
        "text_recompute": _recompute(profile, trains=True),
        "vision_recompute": _recompute(profile, trains="vision" not in profile.train.freeze),
    }


def task_header(model: str) -> tuple[str, ...]:
    """Word the comment at the top of every rendered file of a task, line by line."""
    return (
        f"Rendered from tasks/{model}/profile.yaml by taskpack {__version__}.",
        f"{HEADER_MARK} MODEL={model}",
    )


def pack_header() -> tuple[str, ...]:
    """Word the comment at the top of every rendered file beside the tasks, line by line."""
    return (f"Rendered from templates/pack by taskpack {__version__}.", HEADER_MARK)


def layout_lines(profile: Profile) -> tuple[str, ...]:
    """Write the lines that a load folder's taskpack_layout.json must hold.

    Launchers compare them as text: one key per line, lists inline.
    """
    parallel = profile.parallel
    values = {
        "family": profile.family,
        "tp": parallel.tp,
        "vision_tp": parallel.vision_tp_size,
        "text_layers": parallel.text.to_lists(),
        "vision_layers": parallel.vision.to_lists(),
        "canonical": profile.tuning.lora.canonical,
    }
    return tuple(f'  "{key}": {json.dumps(value)},' for key, value in values.items())


def trainable_table(profile: Profile, mode: str) -> tuple[str, ...]:
    """Line up which modules train, and how, for a launcher to print before it starts.

    Args:
        profile: The checked profile.
        mode: `full` or `lora`.
    """
    rows = [("module", "parameters", "trainable", "how")]
    rows += [
        (module.name, f"{module.parameters:,}", f"{module.trainable:,}", module.how)
        for module in modules(profile, mode)
    ]
    return tuple(
        f"{name:<16}  {size:>14}  {trained:>14}  {how}" for name, size, trained, how in rows
    )


def _settings(profile: Profile) -> tuple[Setting, ...]:
    """List what a launch may override; what is baked into model.json or data.json is not here."""
    train, platform, paths = profile.train, profile.platform, profile.paths
    resumes = profile.resume.iteration is not None
    start = profile.hf.dir if profile.hf.online else paths.mm
    return (
        Setting.of("NPUS_PER_NODE", platform.npus_per_node, "NPUs of each node"),
        Setting.of("NNODES", platform.nodes, "nodes"),
        Setting.of("MASTER_PORT", platform.master_port, "TCP port on the first node"),
        Setting.of("MICRO_BATCH_SIZE", profile.batch.micro, "samples per NPU and forward pass"),
        Setting.of("GRAD_ACCUMULATION", profile.accumulation, "micro batches per step"),
        *_global_batch(profile),
        Setting.of("TRAIN_ITERS", train.iters, "steps"),
        Setting.of("SEQ_LENGTH", train.seq_length, "tokens; longer samples are cut"),
        Setting.of("LR", train.lr, "highest learning rate"),
        Setting.of("SAVE_INTERVAL", train.save_interval, "steps between checkpoints"),
        Setting.of("LOG_INTERVAL", train.log_interval, "steps between log lines"),
        Setting.of("TUNING", profile.tuning.mode, "lora or full"),
        Setting.of("LOAD_PATH", paths.save if resumes else start, "weights to start from"),
        *([Setting.of("BASE_PATH", paths.mm, "converted base weights")] if resumes else []),
        Setting.of("SAVE_PATH", paths.save, "checkpoints of this run"),
        Setting.of(
            "WATCHDOG_SECONDS", 0, "stop after so long without a log line; 0 waits for ever"
        ),
        Setting.of("STOP_SECONDS", 60, "then kill what did not stop"),
        Setting.of("MAX_RESTARTS", 0, "go on after a failure, from the newest complete checkpoint"),
        Setting.of(
            "STOP_WITH_STDIN", 0, "1 stops the run when stdin closes; launch_all.sh sets it"
        ),
        Setting.of("RESTART_FROM", "", "iteration in SAVE_PATH to go on from"),
        Setting.of("MASTER_WAIT_SECONDS", 600, "for the name that a platform gives the master"),
        Setting.of("ASCEND_PREFIX", platform.ascend_prefix, "folder of CANN and ATB"),
        Setting.of("SKIP_CHECKS", 0, "1 starts without the checks"),
    )


def _handed_over(*variables: Setting) -> list[str]:
    """Name what a node that is started over ssh takes from the shell that starts it."""
    return sorted({each.name for each in variables} - _OF_ALL_NODES | _ALSO_HANDED_OVER)


def _global_batch(profile: Profile) -> list[Setting]:
    """Fix the samples per step when the profile does; else launchers derive them from DP."""
    if profile.batch.global_ is None:
        return []
    comment = "samples per step; GRAD_ACCUMULATION follows from it"
    return [Setting.of("GLOBAL_BATCH_SIZE", profile.batch.global_, comment)]


def _vision_model_id(profile: Profile, release: Release) -> str:
    """Name the vision encoder: with windows and shared sequences it is one of its own."""
    shared = profile.parallel.cp > 1 and profile.family_facts.windowed_vision
    return (shared and release.model_json.cp_vision_model_id) or "qwen2vit"


def _no_lora(profile: Profile) -> Fault | None:
    """Say why TUNING=lora cannot be asked for at launch, by the rules of profiles."""
    tuning = profile.tuning.model_copy(update={"mode": "lora"})
    return next(check_profile(profile.model_copy(update={"tuning": tuning})), None)


def _restart(profile: Profile, release: Release) -> dict[str, Any]:
    """List what a start from a saved iteration passes instead, or why it cannot be."""
    if profile.parallel.fsdp2:
        reason = (
            "parallel.fsdp2 saves in torch's DCP form, whose files do not tell what is complete"
        )
    elif profile.hf.online:
        reason = "hf.online bakes the loading of HF weights into model.json"
    else:
        reason = ""
    resumed = restarted(profile)
    groups = {group.name: group.arguments for group in argument_groups(resumed, release)}
    known = lora_arguments(profile, release)
    return {
        "no_restart": reason,
        "restart_checkpoint": groups["checkpoint"],
        "restart_lora": [
            argument for argument in lora_arguments(resumed, release) if argument not in known
        ],
    }


def _recompute(profile: Profile, *, trains: bool) -> dict[str, str | int]:
    """Word the recompute keys of a sub-module of model.json; the trainer ignores the flags.

    A frozen module keeps no activations, so there is nothing to compute again.
    """
    mode = profile.train.recompute
    if mode == "none" or not trains:
        return {}
    if mode == "selective":
        return {"recompute_granularity": "selective"}
    return {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }


def _environment(profile: Profile) -> tuple[Setting, ...]:
    variables = dict(profile.platform.env)
    if profile.parallel.vpp > 1:
        # the trainer's VPP code reads the size from here as well as from its flag
        variables["VP_SIZE"] = str(profile.parallel.vpp)
    return tuple(Setting(name, value, meaning(name)) for name, value in variables.items())
