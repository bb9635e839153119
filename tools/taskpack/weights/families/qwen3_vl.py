"""Qwen3-VL, dense and with experts, in MindSpeed-MM's Megatron form (2.3.0 and later).

Read from transformers 5.24 (`Qwen3VLForConditionalGeneration`,
`Qwen3VLMoeForConditionalGeneration`) and MindSpeed-MM's `qwen3vl_megatron` converter of 26.1.0,
which ships no training example for this form.

Dimensions as in `qwen2_vl`; G a gate and an up projection, O positions of the
vision tower.
"""

from __future__ import annotations

from taskpack.weights.families.qwen2_vl import (
    LAYERS,
    NAMINGS,
    TEXT_DIMS,
    TEXT_MLP_FUSED,
    TEXT_SHARED,
    VISION_DIMS,
    VISION_LAYERNORMS,
    VISION_PROJ,
    VISION_QKV_FUSED,
)
from taskpack.weights.rows import Family, Row

_TEXT = "text_decoder.decoder.layers.{layer}"
_BLOCK = "image_encoder.encoder.blocks.layers.{layer}"
_PROJECTOR = "image_encoder.projector.encoder"
_ATTENTION = "model.layers.{layer}.self_attn"
_EXPERTS = "model.layers.{layer}.mlp.experts"
_MERGER = "visual.deepstack_merger_list.{index}"
_BOTH = ("weight", "bias")

_VISION = (
    Row(
        ("visual.patch_embed.proj",),
        "image_encoder.encoder.patch_embed.proj",
        ("VH C T P P",),
        "vision",
        "first",
        parts=_BOTH,
    ),
    Row(("visual.pos_embed",), "image_encoder.encoder.pos_embed", ("O VH",), "vision", "first"),
    VISION_PROJ,
    VISION_QKV_FUSED,
    *VISION_LAYERNORMS,
    Row(
        ("visual.blocks.{layer}.mlp.linear_fc1",),
        f"{_BLOCK}.mlp.linear_fc1",
        ("VF VH",),
        "vision",
        "layer",
        "column",
        parts=_BOTH,
    ),
    Row(
        ("visual.blocks.{layer}.mlp.linear_fc2",),
        f"{_BLOCK}.mlp.linear_fc2",
        ("VH VF",),
        "vision",
        "layer",
        "row",
        parts=_BOTH,
    ),
    Row(
        ("visual.merger.norm",),
        "image_encoder.projector.layernorm",
        ("VH",),
        "vision",
        "last",
        parts=_BOTH,
    ),
    Row(
        (f"{_MERGER}.norm",),
        f"{_BLOCK}.deepstack_layer.layernorm",
        ("M",),
        "vision",
        "layer",
        parts=_BOTH,
        at="deepstack",
    ),
    Row(
        ("visual.merger.linear_fc1",),
        f"{_PROJECTOR}.linear_fc1",
        ("M M",),
        "vision",
        "last",
        "column",
        parts=_BOTH,
    ),
    Row(
        ("visual.merger.linear_fc2",),
        f"{_PROJECTOR}.linear_fc2",
        ("H M",),
        "vision",
        "last",
        "row",
        parts=_BOTH,
    ),
    Row(
        (f"{_MERGER}.linear_fc1",),
        f"{_BLOCK}.deepstack_layer.encoder.linear_fc1",
        ("M M",),
        "vision",
        "layer",
        "column",
        parts=_BOTH,
        at="deepstack",
    ),
    Row(
        (f"{_MERGER}.linear_fc2",),
        f"{_BLOCK}.deepstack_layer.encoder.linear_fc2",
        ("H M",),
        "vision",
        "layer",
        "row",
        parts=_BOTH,
        at="deepstack",
    ),
)
_ATTENTION_ROWS = (
    Row(
        (f"{_ATTENTION}.q_proj", f"{_ATTENTION}.k_proj", f"{_ATTENTION}.v_proj"),
        f"{_TEXT}.self_attention.linear_qkv",
        ("Q H", "K H", "K H"),
        "text",
        "layer",
        "column",
        order="groups",
    ),
    *(
        Row(
            (f"{_ATTENTION}.{which}_norm",),
            f"{_TEXT}.self_attention.{which}_layernorm",
            ("head_dim",),
            "text",
            "layer",
        )
        for which in ("q", "k")
    ),
)
_EXPERT_ROWS = (
    Row(("model.layers.{layer}.mlp.gate",), f"{_TEXT}.mlp.router", ("experts H",), "text", "layer"),
    Row(
        (f"{_EXPERTS}.gate_up_proj[{{expert}}]",),
        f"{_TEXT}.mlp.experts.local_experts.{{expert}}.linear_fc1",
        ("G H",),
        "text",
        "layer",
        "column",
        sections=2,
        experts="experts",
        transposed=True,
    ),
    Row(
        (f"{_EXPERTS}.down_proj[{{expert}}]",),
        f"{_TEXT}.mlp.experts.local_experts.{{expert}}.linear_fc2",
        ("H F",),
        "text",
        "layer",
        "row",
        experts="experts",
        transposed=True,
    ),
)
_DIMS = {
    "VH": "vision_config.hidden_size",
    "VF": "vision_config.intermediate_size",
    **TEXT_DIMS,
    **VISION_DIMS,
    "O": "vision_config.num_position_embeddings",
    "deepstack[]": "vision_config.deepstack_visual_indexes",
}

QWEN3_VL = Family(
    name="qwen3_vl",
    model_types=("qwen3_vl",),
    dims=_DIMS,
    fused=(*_VISION, *TEXT_SHARED, *_ATTENTION_ROWS, *TEXT_MLP_FUSED),
    namings=NAMINGS[:1],
    layers=LAYERS,
)
QWEN3_VL_MOE = Family(
    name="qwen3_vl_moe",
    model_types=("qwen3_vl_moe",),
    dims={
        **_DIMS,
        "F": "moe_intermediate_size",
        "G": "F * 2",
        "experts": "num_experts | num_local_experts",
    },
    fused=(*_VISION, *TEXT_SHARED, *_ATTENTION_ROWS, *_EXPERT_ROWS),
    namings=NAMINGS[:1],
    layers=LAYERS,
)
