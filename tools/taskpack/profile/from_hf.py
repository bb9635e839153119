"""A model's architecture from its config.json, and a layout that suits it.

Reads the flat form and the nested one that transformers writes since 4.52, without transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from taskpack.errors import ProfileError, raise_collected
from taskpack.parallel import spread
from taskpack.profile._section import freeze
from taskpack.profile.architecture import Architecture
from taskpack.profile.families import Family, families
from taskpack.profile.faults import faults_of
from taskpack.profile.parameters import (
    GRADIENT_BYTES,
    OPTIMIZER_BYTES,
    WEIGHT_BYTES,
    embedding_parameters,
    text_layer_parameters,
    vision_parameters,
)
from taskpack.profile.rules import divisors
from taskpack.profile.yaml_loader import dotted

NPUS_PER_NODE = 8
# of the 64 GB of an NPU; the rest is left to activations and the allocator
_BUDGET_BYTES = 42e9
_MOST_STAGES = 8

_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Layout:
    """A choice of parallel sizes and layers per stage."""

    nodes: int
    tp: int
    text_layers: tuple[int, ...]
    vision_layers: tuple[int, ...]


def read_family(folder: Path) -> Family:
    """Read the family of the model in a Hugging Face folder.

    Raises:
        ProfileError: There is no config.json, it is damaged, or is of no family that is known.
    """
    path = folder / "config.json"
    return _family(path, _read_config(path))


def read_architecture(folder: Path) -> Architecture:
    """Read the architecture of the model in a Hugging Face folder.

    Raises:
        ProfileError: There is no config.json, it is damaged, lacks a key, or is another family's.
    """
    path = folder / "config.json"
    config = _read_config(path)
    keys = _VISION if _family(path, config).windowed_vision else _PLAIN_VISION
    text = {**config, **_mapping(config.get("text_config"))}
    vision = _mapping(config.get("vision_config"))
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    raise_collected(_missing(path, text, vision, keys))
    picked = _pick(vision, keys)
    if keys is _PLAIN_VISION:
        picked["ffn_hidden_size"] = _product(picked["ffn_hidden_size"], picked["hidden_size"])
    data = {"text": _text(text, tied), "vision": picked}
    try:
        return Architecture.model_validate(freeze(data))
    except ValidationError as error:
        faults = list(faults_of(error, Architecture))
    raise_collected([fault.to_error(lambda key: f"{path} ({dotted(key)})") for fault in faults])
    raise AssertionError("a validation error has faults")


def choose_layout(
    shape: Architecture, *, nodes: int | None = None, tp: int | None = None
) -> Layout:
    """Choose the smallest cluster and model parallel size on which full tuning fits.

    Args:
        shape: The architecture.
        nodes: Number of nodes of 8 NPUs; None takes the fewest that fit.
        tp: Tensor parallel size; None takes the smallest that leaves at most 8 stages.

    Raises:
        ProfileError: Nothing fits.
    """
    for count in [nodes] if nodes else [1, 2, 4, 8, 16, 32, 64]:
        for size in divisors(count * NPUS_PER_NODE):
            chosen = _tensor_parallel_size(shape, size, tp)
            copies = count * NPUS_PER_NODE // size
            if chosen and _bytes(shape, size, copies) <= _BUDGET_BYTES:
                stages = size // chosen
                vision_layers = (shape.vision.layers, *[0] * (stages - 1))
                return Layout(count, chosen, balance(shape, stages), vision_layers)
    cluster = f"{nodes} node{'s' if nodes > 1 else ''}" if nodes else "up to 64 nodes"
    raise ProfileError(
        f"no layout{f' with tp {tp}' if tp else ''} fits on {cluster}",
        where="taskpack profile from-hf",
        why=f"weights, gradients and optimizer may take {_BUDGET_BYTES / 1e9:.0f} GB of each NPU, "
        f"tp must divide the heads, and {_MOST_STAGES} stages are the most",
        fix="use more nodes" if nodes and not tp else "leave --tp out",
    )


def generation_layers(shape: Architecture) -> tuple[int, ...]:
    """Choose the text layers of the stages that answer: the fewest that hold the weights."""
    stages = ceil(WEIGHT_BYTES * _parameters(shape) / _BUDGET_BYTES)
    return balance(shape, min(stages, shape.text.layers))


def balance(shape: Architecture, stages: int) -> tuple[int, ...]:
    """Spread text layers so that each stage holds about the same number of parameters.

    Vision and the embedding weigh on the first stage, the output head on the last.
    """
    load = [0] * stages
    load[0] += vision_parameters(shape.vision, shape.text) + embedding_parameters(shape.text)
    load[-1] += embedding_parameters(shape.text)
    return spread(load, text_layer_parameters(shape.text), shape.text.layers)


def _tensor_parallel_size(shape: Architecture, size: int, wanted: int | None) -> int:
    """Give the smallest tensor parallel size with at most 8 stages; 0 when there is none."""
    text, vision = shape.text, shape.vision
    fitting = divisors(
        size,
        text.query_groups,
        vision.attention_heads,
        text.ffn_hidden_size,
        vision.ffn_hidden_size,
        text.vocab_size,
    )
    for tp in fitting:
        if wanted in (None, tp) and size // tp <= min(_MOST_STAGES, text.layers):
            return tp
    return 0


def _bytes(shape: Architecture, size: int, copies: int) -> float:
    per_parameter = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES / copies
    return _parameters(shape) / size * per_parameter


def _parameters(shape: Architecture) -> int:
    heads = 1 if shape.text.tied else 2
    return (
        vision_parameters(shape.vision, shape.text)
        + heads * embedding_parameters(shape.text)
        + shape.text.layers * text_layer_parameters(shape.text)
    )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(
            "the folder holds no config.json",
            where=str(path),
            why="the architecture of the model is read from it",
            fix="name the folder that was downloaded from the hub",
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(
            f"config.json is not JSON: {error}",
            where=str(path),
            why="the file is damaged or was cut short",
            fix="download it again",
        ) from None
    if not isinstance(config, dict):
        raise ProfileError(
            "config.json holds no object",
            where=f"{path}:1",
            why="the architecture is read from its keys",
            fix="download it again",
        )
    return config


_TEXT: dict[str, tuple[str, Any]] = {
    "layers": ("num_hidden_layers", _REQUIRED),
    "hidden_size": ("hidden_size", _REQUIRED),
    "ffn_hidden_size": ("intermediate_size", _REQUIRED),
    "attention_heads": ("num_attention_heads", _REQUIRED),
    "query_groups": ("num_key_value_heads", _REQUIRED),
    "vocab_size": ("vocab_size", _REQUIRED),
    "max_positions": ("max_position_embeddings", _REQUIRED),
    "norm_epsilon": ("rms_norm_eps", _REQUIRED),
}
# the defaults are those of transformers' configuration class of the family
_VISION: dict[str, tuple[str, Any]] = {
    "layers": ("depth", 32),
    "hidden_size": ("hidden_size", _REQUIRED),
    "ffn_hidden_size": ("intermediate_size", _REQUIRED),
    "attention_heads": ("num_heads", 16),
    "in_channels": ("in_channels", 3),
    "patch_size": ("patch_size", 14),
    "temporal_patch_size": ("temporal_patch_size", 2),
    "spatial_merge_size": ("spatial_merge_size", 2),
    "window_size": ("window_size", 112),
    "full_attention_layers": ("fullatt_block_indexes", [7, 15, 23, 31]),
    "tokens_per_second": ("tokens_per_second", 4),
    "norm_epsilon": ("rms_norm_eps", 1e-6),
}


# Qwen2-VL: hidden_size there is the width of the language model, and mlp_ratio times embed_dim
# the width of the feed-forward part; the epsilon is fixed in the model
_PLAIN_VISION: dict[str, tuple[str, Any]] = {
    "layers": ("depth", 32),
    "hidden_size": ("embed_dim", 1280),
    "ffn_hidden_size": ("mlp_ratio", 4),
    "attention_heads": ("num_heads", 16),
    "in_channels": ("in_channels", 3),
    "patch_size": ("patch_size", 14),
    "temporal_patch_size": ("temporal_patch_size", 2),
    "spatial_merge_size": ("spatial_merge_size", 2),
    "norm_epsilon": ("rms_norm_eps", 1e-6),
}


def _family(path: Path, config: Mapping[str, Any]) -> Family:
    name = config.get("model_type")
    if not isinstance(name, str) or name not in families():
        raise ProfileError(
            f"models of type {name!r} are not supported",
            where=f"{path} (model_type)",
            why="a profile needs a family whose weights taskpack can map",
            fix="use a model of type " + " or ".join(families()),
        )
    return families()[name]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _product(ratio: Any, width: Any) -> Any:
    """Multiply two numbers; anything else is left to the check of the architecture."""
    if type(ratio) in (int, float) and type(width) is int and ratio * width == int(ratio * width):
        return int(ratio * width)
    return ratio


def _rope(text: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(text.get("rope_parameters")) or _mapping(text.get("rope_scaling"))


def _missing(
    path: Path,
    text: Mapping[str, Any],
    vision: Mapping[str, Any],
    vision_keys: Mapping[str, tuple[str, Any]],
) -> list[ProfileError]:
    rope = _rope(text)
    present = {
        "rope_scaling.mrope_section": "mrope_section" in rope,
        "rope_theta": "rope_theta" in rope or "rope_theta" in text,
    }
    for prefix, source, keys in (("", text, _TEXT), ("vision_config.", vision, vision_keys)):
        for key, default in keys.values():
            if default is _REQUIRED:
                present[prefix + key] = key in source
    return [
        ProfileError(
            f"config.json lacks {key}",
            where=f"{path} ({key})",
            why="the architecture cannot be known without it",
            fix="download the model's own config.json again",
        )
        for key, found in present.items()
        if not found
    ]


def _pick(source: Mapping[str, Any], keys: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return {name: source.get(key, default) for name, (key, default) in keys.items()}


def _text(source: Mapping[str, Any], tied: Any) -> dict[str, Any]:
    picked, rope = _pick(source, _TEXT), _rope(source)
    width, heads = picked["hidden_size"], picked["attention_heads"]
    if "head_dim" in source:
        picked["head_dim"] = source["head_dim"]
    elif isinstance(width, int) and isinstance(heads, int) and heads > 0:
        picked["head_dim"] = width // heads
    picked["rope_theta"] = rope.get("rope_theta", source.get("rope_theta"))
    picked["mrope_section"] = rope["mrope_section"]
    picked["tied"] = tied
    return picked
