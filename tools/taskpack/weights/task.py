"""What a profile says about weights: the model and its layout."""

from __future__ import annotations

from typing import Any

from taskpack.profile import Profile
from taskpack.weights.hf_config import HfConfig, parse_hf_config
from taskpack.weights.layout import Layout


def task_layout(profile: Profile) -> Layout:
    """Give the layout that the task trains with."""
    return Layout(
        tp_size=profile.parallel.tp,
        text=profile.parallel.text,
        vision=profile.parallel.vision,
        vision_tp_size=profile.parallel.vision_tp_size,
        canonical=profile.tuning.lora.canonical,
    )


def task_model(profile: Profile) -> HfConfig:
    """Give the model as its config.json would, so that one set of formulas serves both."""
    text, vision = profile.architecture.text, profile.architecture.vision
    config: dict[str, Any] = {
        "model_type": profile.family,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.attention_heads,
        "num_key_value_heads": text.query_groups,
        "head_dim": text.head_dim,
        "vocab_size": text.vocab_size,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.ffn_hidden_size,
        "tie_word_embeddings": text.tied,
        "vision_config": {
            "depth": vision.layers,
            "num_heads": vision.attention_heads,
            "hidden_size": vision.hidden_size,
            "intermediate_size": vision.ffn_hidden_size,
            # the same two widths in Qwen2-VL's words
            "embed_dim": vision.hidden_size,
            "mlp_ratio": vision.ffn_hidden_size / vision.hidden_size,
            "in_channels": vision.in_channels,
            "temporal_patch_size": vision.temporal_patch_size,
            "patch_size": vision.patch_size,
            "spatial_merge_size": vision.spatial_merge_size,
        },
    }
    return parse_hf_config(config, where=f"profile of {profile.model}")
