"""Rules about the batch, the run, the adapters, the data and the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from taskpack.errors import nearest
from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile
from taskpack.profile.releases import load_release, release_names
from taskpack.profile.rules import rule
from taskpack.profile.yaml_loader import KeyPath

FUSED_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
CANONICAL_TARGETS = (
    "q_proj", "k_proj", "v_proj", "linear_qkv", "linear_proj", "gate_proj", "up_proj", "linear_fc2",
)  # fmt: skip
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSAFE = re.compile(r"[\"'`$\\{}\n\r]")


@rule("release")
def _release(profile: Profile) -> Iterator[Fault]:
    if profile.release not in release_names():
        yield Fault(
            ("release",),
            f"release {profile.release!r} of MindSpeed-MM is not known",
            "flags and files differ between releases",
            nearest(profile.release, release_names()),
        )


@rule("batch")
def _one_batch_size(profile: Profile) -> Iterator[Fault]:
    given = [name for name in ("accumulation", "global_") if getattr(profile.batch, name)]
    if len(given) != 1:
        yield Fault(
            ("batch", "global") if given else ("batch",),
            "both accumulation and global are given"
            if given
            else "neither accumulation nor global is given",
            "each follows from the other: global = micro x accumulation x DP",
            "keep one of the two" if given else "add accumulation or global",
        )


@rule("batch", "parallel", "platform")
def _global_batch(profile: Profile) -> Iterator[Fault]:
    wanted, micro = profile.batch.global_, profile.batch.micro
    if wanted is None or profile.batch.accumulation or not profile.dp:
        return
    step = micro * profile.dp
    if wanted % step:
        lower, upper = wanted // step * step, (wanted // step + 1) * step
        yield Fault(
            ("batch", "global"),
            f"batch.global {wanted} is not a multiple of micro {micro} x DP {profile.dp} = {step}",
            "every copy of the model computes whole micro batches",
            f"use {lower} or {upper}" if lower else f"use {upper}",
        )


@rule("train", "architecture")
def _train(profile: Profile) -> Iterator[Fault]:
    train = profile.train
    if train.min_lr > train.lr:
        yield Fault(
            ("train", "min_lr"),
            f"train.min_lr {train.min_lr} is above train.lr {train.lr}",
            "the learning rate falls from lr to min_lr",
            f"use a value from 0 to {train.lr}",
        )
    longest = profile.architecture.text.max_positions
    if train.seq_length > longest:
        yield Fault(
            ("train", "seq_length"),
            f"train.seq_length {train.seq_length} exceeds the model's {longest} positions",
            "the model was not made for longer sequences",
            f"use at most {longest}",
        )
    if len(set(train.freeze)) != len(train.freeze):
        yield Fault(
            ("train", "freeze"),
            f"train.freeze {list(train.freeze)} names a part twice",
            "it is a set of parts",
            "name each part once",
        )


@rule("train", "tuning")
def _recompute(profile: Profile) -> Iterator[Fault]:
    if profile.train.recompute == "selective" and profile.tuning.mode == "lora":
        yield Fault(
            ("train", "recompute"),
            "train.recompute selective with LoRA",
            "the trainer refuses to recompute core attention around adapters",
            "use full or none",
        )


@rule("tuning")
def _targets(profile: Profile) -> Iterator[Fault]:
    lora = profile.tuning.lora
    at: KeyPath = ("tuning", "lora", "targets")
    known = CANONICAL_TARGETS if lora.canonical else FUSED_TARGETS
    kind = "canonical" if lora.canonical else "fused"
    if not lora.targets:
        yield Fault(
            at, "tuning.lora.targets is empty", "no module would get an adapter",
            "use " + ", ".join(known),
        )  # fmt: skip
    for index, target in enumerate(lora.targets):
        if target not in known:
            yield Fault(
                (*at, index),
                f"LoRA target {target!r} is no module of the {kind} model",
                "a target that names nothing would silently stay without adapter",
                nearest(target, known),
            )
        elif target in lora.targets[:index]:
            yield Fault((*at, index), f"LoRA target {target!r} is named twice",
                        "it is a set of modules", "name it once")  # fmt: skip


@rule("tuning", "release")
def _canonical(profile: Profile) -> Iterator[Fault]:
    if not profile.tuning.lora.canonical or profile.release not in release_names():
        return
    able = [name for name in release_names() if load_release(name).canonical]
    if profile.release not in able:
        yield Fault(
            ("tuning", "lora", "canonical"),
            f"MindSpeed-MM {profile.release} has no canonical model",
            "it knows q, k, v, gate and up only as fused modules",
            "use canonical: false, or release " + ", ".join(able),
        )


@rule("data")
def _files(profile: Profile) -> Iterator[Fault]:
    if not profile.data.files:
        yield Fault(
            ("data", "files"), "data.files is empty", "there is nothing to train on",
            "name at least one file",
        )  # fmt: skip
    for index, name in enumerate(profile.data.files):
        if re.search(r"[\s,]", name):
            yield Fault(
                ("data", "files", index),
                f"data file {name!r} has a space or a comma in its name",
                "the trainer joins the names by commas and does not trim them",
                "rename the file, or give each file an entry of its own",
            )


@rule("data")
def _pixels(profile: Profile) -> Iterator[Fault]:
    data = profile.data
    for kind in ("image", "video"):
        low, high = getattr(data, f"{kind}_min_pixels"), getattr(data, f"{kind}_max_pixels")
        if low > high:
            yield Fault(
                ("data", f"{kind}_min_pixels"),
                f"data.{kind}_min_pixels {low} is above {kind}_max_pixels {high}",
                "no picture can satisfy both",
                f"use at most {high}",
            )


@rule("platform", "parallel")
def _environment(profile: Profile) -> Iterator[Fault]:
    at: KeyPath = ("platform", "env")
    for name in profile.platform.env:
        if not _VARIABLE.fullmatch(name):
            yield Fault(
                (*at, name),
                f"{name!r} cannot be the name of an environment variable",
                "a shell takes letters, digits and _, and no digit first",
                "rename it",
            )
    connections = profile.platform.env.get("CUDA_DEVICE_MAX_CONNECTIONS")
    fsdp2 = profile.parallel.fsdp2
    if (connections == "1") == fsdp2:
        yield Fault(
            (*at, "CUDA_DEVICE_MAX_CONNECTIONS"),
            f"CUDA_DEVICE_MAX_CONNECTIONS is {connections or 'not set'}",
            f"{'FSDP2 refuses' if fsdp2 else 'Megatron checks that it is'} 1",
            "set CUDA_DEVICE_MAX_CONNECTIONS: 2" if fsdp2 else "set CUDA_DEVICE_MAX_CONNECTIONS: 1",
        )


@rule("hf", "paths", "data", "platform", "generate")
def _shell_text(profile: Profile) -> Iterator[Fault]:
    texts: dict[KeyPath, str] = {
        ("hf", "dir"): profile.hf.dir,
        ("data", "dir"): profile.data.dir,
        ("data", "cache_dir"): profile.data.cache_dir,
        ("platform", "ascend_prefix"): profile.platform.ascend_prefix,
        ("generate", "dir"): profile.generate_dir,
        ("generate", "image"): profile.generate.image or "",
        ("generate", "dataset_file"): profile.generate.dataset_file,
        ("generate", "results"): profile.generate.results,
    }
    for name in type(profile.paths).model_fields:
        texts["paths", name] = getattr(profile.paths, name)
    for name, value in profile.platform.env.items():
        texts["platform", "env", name] = value
    for path, text in texts.items():
        if unsafe := _UNSAFE.search(text):
            yield Fault(
                path,
                f"{text!r} holds the character {unsafe[0]!r}",
                "the value stands in quotes in the rendered scripts, where it means something else",
                "write the value itself; the environment can override it at launch",
            )


RULES = (
    _release,
    _one_batch_size,
    _global_batch,
    _train,
    _recompute,
    _targets,
    _canonical,
    _files,
    _pixels,
    _environment,
    _shell_text,
)
