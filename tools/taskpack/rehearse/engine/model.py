"""The model: rank files into transformers, frozen parts, adapters on MindSpeed-MM's targets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.errors import CheckpointError, ProfileError, nearest, raise_collected, shorten
from taskpack.rehearse.engine.settings import Lora, Settings
from taskpack.weights.adapter import Adapted, adapted_entries
from taskpack.weights.adapter_open import module_name
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.rows import Entry, entries, naming_of, spell

if TYPE_CHECKING:
    from torch import nn

# model.json key: config.json key. The trainer builds from the first; the weights follow the other.
TEXT_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "intermediate_size",
    "num_attention_heads": "num_attention_heads",
    "num_query_groups": "num_key_value_heads",
    "vocab_size": "vocab_size",
    "layernorm_epsilon": "rms_norm_eps",
    "rope_theta": "rope_theta",
}
VISION_KEYS = {
    "num_layers": "depth",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "intermediate_size",
    "num_attention_heads": "num_heads",
    "patch_size": "patch_size",
    "spatial_merge_size": "spatial_merge_size",
    "temporal_patch_size": "temporal_patch_size",
    "window_attn_size": "window_size",
    "fullatt_block_indexes": "fullatt_block_indexes",
}


@dataclass(frozen=True, slots=True)
class Trainable:
    """A model ready to train, and what of it trains."""

    model: nn.Module
    """The transformers model; adapters are inside."""
    peft: Any
    """peft's view of it; None when all weights train."""
    parameters: Sequence[nn.Parameter]
    adapted: Sequence[Adapted]


def check_structure(structure: Mapping[str, Any], hf_dir: Path) -> None:
    """Compare model.json with the config.json of the weights.

    Raises:
        ProfileError: They describe different models; every difference is reported.
    """
    config = json.loads((hf_dir / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config") or config
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    text = {**text, "rope_theta": text.get("rope_theta", rope.get("rope_theta"))}
    decoder = structure["text_decoder"]
    encoder = structure["image_encoder"]["vision_encoder"]
    pairs = [
        ("text_decoder", key, decoder.get(key), text.get(other)) for key, other in TEXT_KEYS.items()
    ]
    pairs.append(
        ("text_decoder", "mrope_section", decoder.get("mrope_section"), rope.get("mrope_section"))
    )
    vision = config["vision_config"]
    pairs += [
        ("vision_encoder", key, encoder.get(key), vision.get(other))
        for key, other in VISION_KEYS.items()
    ]
    raise_collected(
        [
            ProfileError(
                f"{module}.{key} is {ours!r} in model.json and {theirs!r} in the weights",
                where=f"model.json ({module}.{key}) and {hf_dir / 'config.json'}",
                why="the trainer builds the model from model.json and then loads the weights",
                fix="take the profile's architecture from these weights, and render again",
            )
            for module, key, ours, theirs in pairs
            if ours != theirs
        ]
    )


def load_strictly(hf_dir: Path) -> nn.Module:
    """Load a model in float32; a missing or unexpected tensor is an error, not a warning.

    Raises:
        CheckpointError: Names or shapes differ from the model's.
    """
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration
    from transformers.utils import logging

    progress: Any = logging
    progress.disable_progress_bar()
    loader: Any = Qwen2_5_VLForConditionalGeneration
    model, info = loader.from_pretrained(
        hf_dir, torch_dtype=torch.float32, output_loading_info=True
    )
    found = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
    if found:
        raise CheckpointError(
            "; ".join(f"{len(names)} {kind}: {shorten(names, 3)}" for kind, names in found.items()),
            where=str(hf_dir),
            why="a model that lacks a tensor trains from partly random weights",
            fix="convert the weights again with the profile that is rendered",
        )
    loaded: nn.Module = model
    return loaded


def make_trainable(model: nn.Module, settings: Settings, hf_dir: Path) -> Trainable:
    """Freeze what model.json freezes, or put adapters on what the flags target.

    Raises:
        ProfileError: A target is no module of this family, or nothing is left to train.
    """
    config = read_hf_config(hf_dir)
    base = entries(
        config.family, config.dims, canonical=settings.layout.canonical, tied=config.tied
    )
    free = [entry for entry in base if not _is_frozen(entry, settings.frozen)]
    names = dict(model.named_parameters())
    if settings.lora is None:
        trained = set(_parameter_names(free, config, names))
        for name, parameter in names.items():
            parameter.requires_grad_(name in trained)
        return Trainable(model, None, [p for p in model.parameters() if p.requires_grad], ())
    adapted = _targeted(base, free, settings.lora)
    peft = _with_adapters(model, adapted, config, names, settings.lora)
    return Trainable(model, peft, [p for p in peft.parameters() if p.requires_grad], adapted)


def _is_frozen(entry: Entry, frozen: tuple[bool, bool]) -> bool:
    """The last stage of the vision tower is the projector."""
    vision, projector = frozen
    if entry.module != "vision":
        return False
    return projector if entry.stage == "last" else vision


def _parameter_names(
    chosen: Iterable[Entry], config: HfConfig, names: Mapping[str, Any]
) -> list[str]:
    naming = naming_of(config.family, names.keys())
    return [
        spell(spelled, naming)
        for entry in chosen
        for variants in entry.spelled.values()
        for spelled in variants
    ]


def _targeted(base: Sequence[Entry], free: Sequence[Entry], lora: Lora) -> list[Adapted]:
    possible = adapted_entries(base, lora.r)
    known = sorted({module_name(item) for item in possible})
    raise_collected(
        [
            ProfileError(
                f"LoRA target {target!r} is no module of this model",
                where="--lora-target-modules",
                why="the trainer would train without it, and say nothing",
                fix=nearest(target, known),
            )
            for target in lora.targets
            if target not in known
        ]
    )
    # MindSpeed-MM wraps a module only if none of its parameters is frozen.
    chosen = [i for i in adapted_entries(free, lora.r) if module_name(i) in lora.targets]
    if not chosen:
        raise ProfileError(
            f"the LoRA targets {' '.join(lora.targets)} lie in frozen modules only",
            where="--lora-target-modules and freeze in model.json",
            why="there is no parameter to train",
            fix="add a target of the text decoder, or free the vision tower",
        )
    return chosen


def _with_adapters(
    model: nn.Module,
    adapted: Sequence[Adapted],
    config: HfConfig,
    names: Mapping[str, Any],
    lora: Lora,
) -> Any:
    from peft import LoraConfig, get_peft_model

    naming = naming_of(config.family, names.keys())
    groups = [
        [spell(name, naming).removesuffix(".weight") for name in item.base.tensors]
        for item in adapted
    ]
    settings = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=[name for group in groups for name in group],
    )
    wrap: Any = get_peft_model
    peft = wrap(model, settings)
    for first, *others in groups:
        for other in others:
            # One A for q, k, v and one for gate, up, as the fused modules have.
            model.get_submodule(other).lora_A = model.get_submodule(first).lora_A
    return peft
