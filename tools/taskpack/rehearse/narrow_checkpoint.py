"""A narrow HF checkpoint: published names, layers and heads, random weights of small width."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.errors import CheckpointError
from taskpack.rehearse.hf_weights import hub_name, write_json, write_shards
from taskpack.rehearse.tokenizer import save_tokenizer

if TYPE_CHECKING:
    import torch

    from taskpack.profile import Profile

WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
REQUIRED_FILES = ("config.json", "tokenizer.json", "preprocessor_config.json")


def narrow_config(profile: Profile) -> dict[str, Any]:
    """Describe the profile's architecture as a `config.json` of the published, flat form."""
    text, vision = profile.architecture.text, profile.architecture.vision
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "vision_token_id": 151654,
        "image_token_id": 151655,
        "video_token_id": 151656,
        "hidden_act": "silu",
        "hidden_size": text.hidden_size,
        "intermediate_size": text.ffn_hidden_size,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.attention_heads,
        "num_key_value_heads": text.query_groups,
        "max_position_embeddings": text.max_positions,
        "rms_norm_eps": text.norm_epsilon,
        "rope_theta": text.rope_theta,
        "rope_scaling": {"type": "mrope", "mrope_section": list(text.mrope_section)},
        "tie_word_embeddings": text.tied,
        "use_sliding_window": False,
        "vocab_size": text.vocab_size,
        "torch_dtype": "bfloat16",
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": vision.layers,
            "hidden_act": "silu",
            "hidden_size": vision.hidden_size,
            "intermediate_size": vision.ffn_hidden_size,
            "num_heads": vision.attention_heads,
            "in_chans": vision.in_channels,
            "in_channels": vision.in_channels,
            "patch_size": vision.patch_size,
            "temporal_patch_size": vision.temporal_patch_size,
            "spatial_merge_size": vision.spatial_merge_size,
            "spatial_patch_size": vision.patch_size,
            "window_size": vision.window_size,
            "fullatt_block_indexes": list(vision.full_attention_layers),
            "tokens_per_second": vision.tokens_per_second,
            "out_hidden_size": text.hidden_size,
        },
    }


def save_narrow_checkpoint(
    profile: Profile, folder: Path, *, text: Iterable[str], source: Path | None = None
) -> None:
    """Write a folder that loads like the published one, without a network.

    Args:
        profile: The narrow twin.
        folder: Where to write; made if absent.
        text: Sentences the stand-in tokenizer learns from.
        source: A model folder whose tokenizer, processor and config fields are used instead.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = narrow_config(profile)
    if source is None:
        vocab_size = profile.architecture.text.vocab_size
        save_tokenizer(folder, text=text, vocab_size=vocab_size)
        write_json(folder / "preprocessor_config.json", _processor_settings(profile))
        write_json(folder / "generation_config.json", _generation_settings())
    else:
        config = _copy_all_but_weights(source, folder, narrow=config)
    write_json(folder / "config.json", config)
    write_shards(folder, _named_tensors(folder, seed=profile.train.seed))


def _processor_settings(profile: Profile) -> dict[str, Any]:
    vision = profile.architecture.vision
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": vision.patch_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "merge_size": vision.spatial_merge_size,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }


def _generation_settings() -> dict[str, Any]:
    return {
        "bos_token_id": 151643,
        "pad_token_id": 151643,
        "eos_token_id": [151645, 151643],
        "do_sample": False,
    }


def _copy_all_but_weights(
    source: Path, folder: Path, *, narrow: Mapping[str, Any]
) -> dict[str, Any]:
    missing = [name for name in REQUIRED_FILES if not (source / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{source} lacks {', '.join(missing)}",
            where=str(source),
            why="the rehearsal uses this folder's tokenizer, image processor and config",
            fix="point --hf at a complete model folder, or leave it out to use the stand-ins",
        )
    for path in sorted(source.iterdir()):
        if path.is_file() and not any(path.match(pattern) for pattern in WEIGHT_FILES):
            shutil.copyfile(path, folder / path.name)
    config: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    return _narrowed(config, narrow)


def _narrowed(config: dict[str, Any], narrow: Mapping[str, Any]) -> dict[str, Any]:
    """Replace widths in a user's config, which may nest the text fields (transformers >= 4.52)."""
    text_fields = {key for key in narrow if key not in ("vision_config", "architectures")}
    nested = config.get("text_config")
    home = nested if isinstance(nested, dict) else config
    result = {**config, "vision_config": {**config.get("vision_config", {})}}
    result["vision_config"].update(narrow["vision_config"])
    kept = {"model_type"} | {key for key in narrow if key.endswith("_token_id")}
    updates = {key: narrow[key] for key in text_fields - kept}
    if isinstance(nested, dict):
        model_types = {"model_type": nested.get("model_type", "qwen2_5_vl_text")}
        result["text_config"] = {**home, **updates, **model_types}
        result["text_config"].pop("rope_parameters", None)
        result["tie_word_embeddings"] = narrow["tie_word_embeddings"]
    else:
        result.update(updates)
    return result


def _named_tensors(folder: Path, *, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    import torch
    from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    for name, parameter in model.named_parameters():
        unit = name.endswith("embed_tokens.weight") and not model.config.tie_word_embeddings
        yield hub_name(name), _fill(name, tuple(parameter.shape), seed=seed, unit=unit)


def _fill(name: str, shape: tuple[int, ...], *, seed: int, unit: bool) -> torch.Tensor:
    """Draw a tensor from its own name, so that no value depends on the order of the others.

    Norms and biases are random as well: a constant would hide that two of them were exchanged.
    Matrices keep the size of what passes through them, so a few steps can move the loss; an
    embedding that is no matrix of the forward pass has `unit` values.
    """
    import torch

    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    values = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        values = values * 0.1 + (0.0 if name.endswith("bias") else 1.0)
    elif not unit:
        values = values / math.sqrt(math.prod(shape[1:]))
    return values.to(torch.bfloat16)
