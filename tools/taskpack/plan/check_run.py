"""What can be told of a run from its profile alone, beyond the rules that every profile keeps."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.plan.activations import media_tokens
from taskpack.plan.findings import Check
from taskpack.plan.memory import GIB, Memory
from taskpack.plan.volumes import SLOW_DISK_BYTES_PER_SECOND, Volumes
from taskpack.profile import Profile
from taskpack.profile.checks import rules

_USUAL_SCALE = 2.0


def check_cluster(profile: Profile) -> Iterator[Check]:
    """Say that the rules hold, and how the copies of the model lie on the nodes."""
    parallel, platform = profile.parallel, profile.platform
    yield Check("profile", "pass", f"{len(rules())} rules between its keys hold")
    yield Check(
        "cluster",
        "pass",
        f"{platform.nodes} x {platform.npus_per_node} NPUs hold {profile.dp} whole "
        f"cop{'ies' if profile.dp > 1 else 'y'} of {profile.model_parallel_size}",
    )
    if parallel.tp > platform.npus_per_node or platform.npus_per_node % parallel.tp:
        yield Check(
            "cluster",
            "note",
            f"groups of TP {parallel.tp} reach over nodes of {platform.npus_per_node} NPUs",
            where="parallel.tp",
            why="their ranks exchange activations in every layer, which only the links inside a "
            "node are made for",
            fix=f"use a TP that divides {platform.npus_per_node}",
        )
    if profile.dp * parallel.cp == 1 and profile.tuning.mode == "full":
        yield Check(
            "cluster",
            "note",
            "DP 1: the distributed optimizer has no one to share its state with",
            where="platform.nodes",
            why="its 12 bytes a parameter stay whole on each NPU",
            fix=f"with {2 * profile.least_nodes} nodes each NPU keeps half of them",
        )


def check_media(profile: Profile) -> Iterator[Check]:
    """Hold the largest picture against the sequence length."""
    data, limit, vision = profile.data, profile.train.seq_length, profile.architecture.vision
    tokens = media_tokens(profile)
    if not tokens:
        return
    kind = "image" if data.media == "images" else "video"
    key = f"data.{kind}_max_pixels"
    if tokens < limit:
        yield Check("sequence", "pass", f"the largest {kind} takes {tokens} of {limit} tokens")
        return
    side = vision.patch_size * vision.spatial_merge_size
    frames = 1 if kind == "image" else -(-data.video_max_frames // vision.temporal_patch_size)
    yield Check(
        "sequence",
        "fail",
        f"the largest {kind} takes {tokens} tokens, train.seq_length is {limit}",
        where=key,
        why="a sample is cut at that length, and a picture that lost tokens stops the trainer",
        fix=f"use at most {max(limit - 1, 1) // frames * side**2} for {key}, or train.seq_length "
        f"above {tokens}",
    )


def check_memory(profile: Profile, found: list[Memory], hbm: int) -> Iterator[Check]:
    """Hold the memory of the fullest stage against that of an NPU."""
    stage = max(range(len(found)), key=lambda index: found[index].total)
    most = found[stage]
    takes = (
        f"stage {stage} takes {most.total / GIB:.1f} GiB ({most.low / GIB:.1f} to "
        f"{most.high / GIB:.1f}) of {hbm / GIB:.0f}"
    )
    if most.high <= hbm:
        yield Check("memory", "pass", f"the fullest {takes}")
        return
    parts = most.to_json()
    largest = max(
        ("weights", "gradients", "optimizer", "activations", "logits"), key=parts.__getitem__
    )
    yield Check(
        "memory",
        "fail" if most.low > hbm else "note",
        f"{takes}: it {'cannot' if most.low > hbm else 'may not'} fit",
        where="parallel",
        why=f"the largest part is {largest}, {parts[largest] / GIB:.1f} GiB",
        fix=_relief(profile, largest),
    )


def _relief(profile: Profile, largest: str) -> str:
    suggest = f"let plan choose a layout: taskpack plan {profile.model} --suggest"
    if largest == "activations" or profile.train.recompute != "full":
        again = "train.recompute: full, " if profile.train.recompute != "full" else ""
        shorter = "" if profile.train.seq_length <= 1024 else "a shorter train.seq_length, "
        return f"{again}{shorter}more nodes, or {suggest}"
    return f"more nodes, tuning.mode: lora, or {suggest}"


def check_saving(profile: Profile, sizes: Volumes) -> Iterator[Check]:
    """Hold the time of a save against the timeout, and the scale of the adapter against custom."""
    seconds = sizes.largest_write / SLOW_DISK_BYTES_PER_SECOND
    allowed = 60 * profile.platform.timeout_minutes
    if seconds > allowed:
        yield Check(
            "saving",
            "note",
            f"one rank writes {sizes.largest_write / GIB:.1f} GiB, {seconds / 60:.0f} minutes on a "
            f"disk of {SLOW_DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s",
            where="platform.timeout_minutes",
            why=f"after {profile.platform.timeout_minutes} minutes the waiting ranks give up",
            fix=f"set platform.timeout_minutes: {-(-int(seconds) // 60) + 5} if the disk is slow",
        )
    if profile.train.save_interval > profile.train.iters:
        yield Check(
            "saving",
            "note",
            f"train.save_interval {profile.train.save_interval:,} exceeds the "
            f"{profile.train.iters:,} steps",
            where="train.save_interval",
            why="the only checkpoint is that of the last step",
            fix=f"use at most {profile.train.iters} to have one to go back to",
        )


def check_tuning(profile: Profile) -> Iterator[Check]:
    """Name settings of the adapter and of frozen stages that are worth a look."""
    lora = profile.tuning.lora
    scale = lora.alpha / lora.r
    if profile.tuning.mode == "lora" and not _USUAL_SCALE / 2 <= scale <= _USUAL_SCALE * 2:
        yield Check(
            "adapter",
            "note",
            f"alpha {lora.alpha} / r {lora.r} = {scale:g}",
            where="tuning.lora",
            why="what the adapter learns is multiplied by it; 2 is usual",
            fix=f"use alpha: {int(_USUAL_SCALE * lora.r)}, or a learning rate that fits",
        )
    if profile.frozen_stages:
        named = ", ".join(map(str, profile.frozen_stages))
        yield Check(
            "frozen stage",
            "note",
            f"stage {named} trains nothing: --enable-dummy-optimizer is passed",
            where="parallel.text_layers",
            why="its NPUs only pass on what frozen layers compute",
            fix="give every stage a text layer",
        )
