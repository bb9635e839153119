"""A small task, and weights of it or of a full-size model as sparse files."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

from taskpack.profile import Profile, load_profile, to_yaml
from taskpack.weights.rows import entries
from taskpack.weights.task import task_model

TASKS = Path(__file__).parents[3] / "tasks"
_SMALL = (
    "architecture.text.layers=4", "architecture.text.hidden_size=64",
    "architecture.text.ffn_hidden_size=96", "architecture.text.attention_heads=4",
    "architecture.text.query_groups=2", "architecture.text.head_dim=16",
    "architecture.text.vocab_size=320", "architecture.text.mrope_section=[2, 3, 3]",
    "architecture.vision.layers=2", "architecture.vision.hidden_size=32",
    "architecture.vision.ffn_hidden_size=48", "architecture.vision.attention_heads=2",
    "architecture.vision.full_attention_layers=[1]", "parallel.tp=2",
    "parallel.text_layers=[1, 3]", "parallel.vision_layers=[2, 0]", "generate.text_layers=null",
    "generate.vision_layers=null", "data.files=[rows.json]",
)  # fmt: skip


def make_small_task(root: Path, *overrides: str) -> Profile:
    """Write tasks/small/profile.yaml: TP 2, PP 2, a model of 4 + 2 layers."""
    profile = load_profile(TASKS / "qwen2.5vl-7b" / "profile.yaml", (*_SMALL, *overrides))
    profile = profile.model_copy(update={"model": "small"})
    folder = root / "tasks" / "small"
    folder.mkdir(parents=True)
    (folder / "profile.yaml").write_text(to_yaml(profile), encoding="utf-8")
    return profile


def make_hf(folder: Path, profile: Profile) -> Path:
    """Write a folder as a hub has it; the file of weights has a header and a hole."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(profile)), encoding="utf-8")
    for name in ("preprocessor_config.json", "tokenizer_config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    model = task_model(profile)
    shapes = {
        name: shape
        for entry in entries(model.family, model.dims, canonical=True, tied=model.tied)
        for name, shape in entry.tensors.items()
    }
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)
    return folder


def config_of(profile: Profile) -> dict[str, Any]:
    """Spell an architecture as config.json does."""
    text, vision = profile.architecture.text, profile.architecture.vision
    return {
        "model_type": profile.family,
        "num_hidden_layers": text.layers,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.ffn_hidden_size,
        "num_attention_heads": text.attention_heads,
        "num_key_value_heads": text.query_groups,
        "vocab_size": text.vocab_size,
        "max_position_embeddings": text.max_positions,
        "rms_norm_eps": text.norm_epsilon,
        "rope_theta": text.rope_theta,
        "rope_scaling": {"type": "mrope", "mrope_section": list(text.mrope_section)},
        "tie_word_embeddings": text.tied,
        "vision_config": {
            "depth": vision.layers,
            "hidden_size": vision.hidden_size,
            "intermediate_size": vision.ffn_hidden_size,
            "num_heads": vision.attention_heads,
            "in_channels": vision.in_channels,
            "patch_size": vision.patch_size,
            "temporal_patch_size": vision.temporal_patch_size,
            "spatial_merge_size": vision.spatial_merge_size,
            "window_size": vision.window_size,
            "fullatt_block_indexes": list(vision.full_attention_layers),
            "tokens_per_second": vision.tokens_per_second,
        },
    }
