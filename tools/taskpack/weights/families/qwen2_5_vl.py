"""Qwen2.5-VL: Qwen2-VL with a gated vision MLP and RMS norms.

Read from the HF revision of transformers 4.53 (`Qwen2_5_VLForConditionalGeneration`) and
MindSpeed-MM 57069cd5 (branches 2.1.0 to 26.1.0 place alike, apart from their defects).
Dimensions as in `qwen2_vl`.
"""

from __future__ import annotations

from taskpack.weights.families.qwen2_vl import (
    LAYERS,
    NAMINGS,
    TEXT_CANONICAL,
    TEXT_DIMS,
    TEXT_FUSED,
    VISION_DIMS,
    VISION_QKV_CANONICAL,
    VISION_QKV_FUSED,
    VISION_SHARED,
)
from taskpack.weights.rows import Family, Row

_BLOCK = "image_encoder.encoder.blocks.layers.{layer}"
_MLP = "visual.blocks.{layer}.mlp"

_SHARED = (
    *VISION_SHARED,
    Row(("visual.blocks.{layer}.norm1",), f"{_BLOCK}.input_layernorm", ("VH",), "vision", "layer"),
    Row(
        ("visual.blocks.{layer}.norm2",), f"{_BLOCK}.pre_mlp_layernorm", ("VH",), "vision", "layer"
    ),
    Row(
        (f"{_MLP}.down_proj",),
        f"{_BLOCK}.mlp.linear_fc2",
        ("VH VF",),
        "vision",
        "layer",
        "row",
        parts=("weight", "bias"),
    ),
    Row(("visual.merger.ln_q",), "image_encoder.projector.layernorm", ("VH",), "vision", "last"),
)
_FUSED = (
    *_SHARED,
    VISION_QKV_FUSED,
    Row(
        (f"{_MLP}.gate_proj", f"{_MLP}.up_proj"),
        f"{_BLOCK}.mlp.linear_fc1",
        ("VF VH", "VF VH"),
        "vision",
        "layer",
        "column",
        parts=("weight", "bias"),
    ),
)
_CANONICAL = (
    *_SHARED,
    VISION_QKV_CANONICAL,
    *(
        Row(
            (f"{_MLP}.{name}_proj",),
            f"{_BLOCK}.mlp.{name}_proj",
            ("VF VH",),
            "vision",
            "layer",
            "column",
            parts=("weight", "bias"),
        )
        for name in ("gate", "up")
    ),
)

QWEN2_5_VL = Family(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl",),
    dims={
        "VH": "vision_config.hidden_size",
        "VF": "vision_config.intermediate_size",
        **TEXT_DIMS,
        **VISION_DIMS,
    },
    fused=(*_FUSED, *TEXT_FUSED),
    namings=NAMINGS,
    layers=LAYERS,
    canonical=(*_CANONICAL, *TEXT_CANONICAL),
)
