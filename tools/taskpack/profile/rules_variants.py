"""Rules about variants of a run, and about what its release and family can do."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.errors import nearest
from taskpack.profile.extra import FlagValue
from taskpack.profile.families import families
from taskpack.profile.faults import Fault
from taskpack.profile.json_keys import json_faults
from taskpack.profile.model import Profile
from taskpack.profile.releases import FlagSpec, load_release, release_names, releases_of
from taskpack.profile.rules import rule
from taskpack.profile.yaml_loader import KeyPath

STRUCTURE_FLAGS = (
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--num-query-groups",
    "--group-query-attention",
    "--kv-channels",
    "--max-position-embeddings",
    "--position-embedding-type",
    "--rotary-base",
    "--attention-dropout",
    "--hidden-dropout",
    "--init-method-std",
    "--norm-epsilon",
    "--recompute-granularity",
    "--recompute-method",
    "--recompute-num-layers",
    "--recompute-activations",
)
"""Flags that the trainer takes and forgets: the values of model.json replace them."""


@rule("family", "release", "hf")
def _family_in_release(profile: Profile) -> Iterator[Fault]:
    if profile.release not in release_names():
        return
    able = releases_of(profile.family)
    if profile.release not in able:
        yield Fault(
            ("release",),
            f"MindSpeed-MM {profile.release} has no example of {profile.family_facts.title}",
            "flags, keys and software pins of the model are not known there",
            "use release " + ", ".join(able),
        )


@rule("family", "architecture")
def _family_shape(profile: Profile) -> Iterator[Fault]:
    vision = profile.architecture.vision
    windowed = profile.family_facts.windowed_vision
    for name in ("window_size", "tokens_per_second", "full_attention_layers"):
        given = bool(getattr(vision, name))
        if given == windowed:
            continue
        fitting = [each.name for each in families().values() if each.windowed_vision == given]
        yield Fault(
            ("architecture", "vision", name),
            f"{profile.family} {'needs' if windowed else 'has no'} {name}",
            "its vision encoder attends in windows" if windowed else "its vision encoder has none",
            ("copy it from the model's config.json" if windowed else "leave it out")
            + f", or set family: {' or '.join(fitting)}",
        )


@rule("family", "tuning")
def _canonical_family(profile: Profile) -> Iterator[Fault]:
    if profile.tuning.lora.canonical and not profile.family_facts.canonical:
        yield Fault(
            ("tuning", "lora", "canonical"),
            f"{profile.family_facts.title} has no canonical model",
            "MindSpeed-MM has it only with fused q, k, v and gate, up",
            "use canonical: false with the targets linear_qkv, linear_proj, linear_fc1, linear_fc2",
        )


@rule("parallel", "tuning", "architecture")
def _canonical_context(profile: Profile) -> Iterator[Fault]:
    if profile.tuning.lora.canonical and profile.parallel.cp > 1:
        yield Fault(
            ("tuning", "lora", "canonical"),
            f"a canonical model with context parallel size {profile.parallel.cp}",
            "the vision encoder that shares sequences has no canonical form",
            "use canonical: false, or parallel.cp: 1",
        )


@rule("parallel", "release", "architecture", "tuning", "train", "hf")
def _fsdp2(profile: Profile) -> Iterator[Fault]:
    parallel = profile.parallel
    if not parallel.fsdp2 or profile.release not in release_names():
        return
    able = [name for name in release_names() if load_release(name).fsdp2]
    where: KeyPath = ("parallel", "fsdp2")
    why = "FSDP2 shards every parameter over all NPUs"
    if profile.release not in able:
        yield Fault(where, f"MindSpeed-MM {profile.release} has no FSDP2",
                    "none of its examples uses it", "use release " + ", ".join(able))  # fmt: skip
    if (parallel.tp, parallel.pp, parallel.vpp) != (1, 1, 1):
        yield Fault(
            ("parallel", "tp" if parallel.tp > 1 else "text_layers"),
            f"FSDP2 with TP {parallel.tp} x PP {parallel.pp}", why,
            f"use tp: 1, text_layers: [{profile.architecture.text.layers}] and "
            f"vision_layers: [{profile.architecture.vision.layers}]",
        )  # fmt: skip
    if profile.architecture.text.tied:
        yield Fault(where, f"FSDP2 with {profile.title}, whose head is its embedding",
                    "the trainer would untie them", "use parallel.fsdp2: false")  # fmt: skip
    if profile.tuning.mode == "lora":
        yield Fault(("tuning", "mode"), "LoRA with FSDP2",
                    "no example of MindSpeed-MM does it, and the adapter would be saved in torch's "
                    "DCP form", "use tuning.mode: full, or parallel.fsdp2: false")  # fmt: skip
    for on, key in ((profile.train.fused_gradients, ("train", "fused_gradients")),
                    (profile.hf.online, ("hf", "online"))):  # fmt: skip
        if on:
            yield Fault(key, f"{'.'.join(key)} with FSDP2", why, f"set {key[-1]}: false")


@rule("hf", "release", "parallel", "tuning")
def _online(profile: Profile) -> Iterator[Fault]:
    if not profile.hf.online or profile.release not in release_names():
        return
    able = [name for name in release_names() if load_release(name).bridge]
    where: KeyPath = ("hf", "online")
    if profile.release not in able:
        yield Fault(where, f"MindSpeed-MM {profile.release} cannot load HF weights",
                    "it loads converted weights only", "use online: false, or release "
                    + ", ".join(able))  # fmt: skip
    if profile.parallel.pp > 1:
        yield Fault(where, f"hf.online with {profile.parallel.pp} stages",
                    "MindSpeed-MM cuts HF weights for tensor parallel ranks only",
                    "use online: false and convert, or lists of one stage")  # fmt: skip
    if profile.tuning.mode == "lora" or profile.tuning.lora.canonical:
        kind = "a canonical model" if profile.tuning.lora.canonical else "LoRA"
        yield Fault(where, f"hf.online with {kind}",
                    "HF weights are mapped to the plain, fused names",
                    "use online: false and convert")  # fmt: skip


@rule("extra", "release")
def _extra_keys(profile: Profile) -> Iterator[Fault]:
    if profile.release in release_names():
        for file in ("model_json", "data_json"):
            values = getattr(profile.extra, file)
            yield from json_faults(file, values, profile.release, ("extra", file))


@rule("extra", "release")
def _extra_flags(profile: Profile) -> Iterator[Fault]:
    if profile.release not in release_names():
        return
    known = load_release(profile.release).flags
    for flag, value in profile.extra.flags.items():
        at: KeyPath = ("extra", "flags", flag)
        if flag in STRUCTURE_FLAGS:
            yield Fault(
                at, f"the flag {flag} has no effect",
                "the trainer takes the structure of the model from model.json",
                "use the keys of architecture and train.recompute",
            )  # fmt: skip
        elif flag not in known:
            yield Fault(
                at, f"MindSpeed-MM {profile.release} has no flag {flag}",
                "the trainer stops at a flag that it does not know", nearest(flag, known),
            )  # fmt: skip
        elif wanted := _unfit(known[flag], value):
            yield Fault(
                at, f"the flag {flag} cannot be {_shown(value)}",
                "the trainer stops at a value that it cannot read", f"give {wanted}",
            )  # fmt: skip


def _shown(value: FlagValue) -> str:
    words = value if isinstance(value, tuple) else (value,)
    return " ".join(str(word).lower() if isinstance(word, bool) else repr(word) for word in words)


def _unfit(spec: FlagSpec, value: FlagValue) -> str:
    """Say what a flag takes instead of a value; empty when the value fits."""
    if spec.switch:
        return "" if value is True else "true; it takes no value"
    words = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) and spec.nargs is None:
        return "one value"
    if spec.choices and not all(str(word) in spec.choices for word in words):
        return " or ".join(spec.choices)
    if spec.type == "int" and not all(type(word) is int for word in words):
        return "a whole number"
    if spec.type == "float" and not all(type(word) in (int, float) for word in words):
        return "a number"
    if spec.type != "bool" and any(isinstance(word, bool) for word in words):
        return "a value, not true or false"
    return ""


RULES = (
    _family_in_release,
    _family_shape,
    _canonical_family,
    _canonical_context,
    _fsdp2,
    _online,
    _extra_keys,
    _extra_flags,
)
