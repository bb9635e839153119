"""Qwen2-VL.

Read from the HF revision of transformers 4.53 (`Qwen2VLForConditionalGeneration`) and MindSpeed-MM
57069cd5 (branches 2.1.0 to 26.1.0 place alike, apart from their defects).

Dimensions: V vocabulary, H hidden, F ffn, Q query rows, K key or value rows; VH, VF the same for
the vision tower, M the merged patch, C channels, T frames and P pixels of a patch.
"""

from __future__ import annotations

from taskpack.weights.rows import Family, Module, Row

TEXT_DIMS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "groups": "num_key_value_heads",
    "head_dim": "head_dim | hidden_size / num_attention_heads",
    "V": "vocab_size",
    "H": "hidden_size",
    "F": "intermediate_size",
    "Q": "heads * head_dim",
    "K": "groups * head_dim",
}
VISION_DIMS = {
    "vision_layers": "vision_config.depth",
    "vision_heads": "vision_config.num_heads",
    "C": "vision_config.in_channels | vision_config.in_chans",
    "T": "vision_config.temporal_patch_size",
    "P": "vision_config.patch_size",
    "merge": "vision_config.spatial_merge_size",
    "M": "VH * merge * merge",
    "QKV": "VH * 3",
}

_TEXT = "text_decoder.decoder.layers.{layer}"
_BLOCK = "image_encoder.encoder.blocks.layers.{layer}"
_PROJECTOR = "image_encoder.projector"

TEXT_ENDS = (
    Row(
        ("model.embed_tokens",),
        "text_decoder.embedding.word_embeddings",
        ("V H",),
        "text",
        "first",
        "column",
    ),
    Row(("model.norm",), "text_decoder.decoder.final_layernorm", ("H",), "text", "last"),
    Row(
        ("lm_head",),
        "text_decoder.output_layer",
        ("V H",),
        "text",
        "last",
        "column",
        tied_to="model.embed_tokens",
    ),
)
TEXT_SHARED = (
    *TEXT_ENDS,
    Row(
        ("model.layers.{layer}.input_layernorm",),
        f"{_TEXT}.input_layernorm",
        ("H",),
        "text",
        "layer",
    ),
    Row(
        ("model.layers.{layer}.post_attention_layernorm",),
        f"{_TEXT}.pre_mlp_layernorm",
        ("H",),
        "text",
        "layer",
    ),
    Row(
        ("model.layers.{layer}.self_attn.o_proj",),
        f"{_TEXT}.self_attention.linear_proj",
        ("H Q",),
        "text",
        "layer",
        "row",
    ),
)
_DOWN = Row(
    ("model.layers.{layer}.mlp.down_proj",),
    f"{_TEXT}.mlp.linear_fc2",
    ("H F",),
    "text",
    "layer",
    "row",
)
TEXT_MLP_FUSED = (
    _DOWN,
    Row(
        ("model.layers.{layer}.mlp.gate_proj", "model.layers.{layer}.mlp.up_proj"),
        f"{_TEXT}.mlp.linear_fc1",
        ("F H", "F H"),
        "text",
        "layer",
        "column",
    ),
)
TEXT_FUSED = (
    *TEXT_SHARED,
    *TEXT_MLP_FUSED,
    Row(
        (
            "model.layers.{layer}.self_attn.q_proj",
            "model.layers.{layer}.self_attn.k_proj",
            "model.layers.{layer}.self_attn.v_proj",
        ),
        f"{_TEXT}.self_attention.linear_qkv",
        ("Q H", "K H", "K H"),
        "text",
        "layer",
        "column",
        order="groups",
        parts=("weight", "bias"),
    ),
)
TEXT_CANONICAL = (
    *TEXT_SHARED,
    _DOWN,
    *(
        Row(
            (f"model.layers.{{layer}}.self_attn.{name}_proj",),
            f"{_TEXT}.self_attention.{name}_proj",
            (shape,),
            "text",
            "layer",
            "column",
            parts=("weight", "bias"),
        )
        for name, shape in (("q", "Q H"), ("k", "K H"), ("v", "K H"))
    ),
    *(
        Row(
            (f"model.layers.{{layer}}.mlp.{name}_proj",),
            f"{_TEXT}.mlp.{name}_proj",
            ("F H",),
            "text",
            "layer",
            "column",
        )
        for name in ("gate", "up")
    ),
)

PROJECTOR_LINEAR = (
    Row(
        ("visual.merger.mlp.0",),
        f"{_PROJECTOR}.encoder.linear_fc1",
        ("M M",),
        "vision",
        "last",
        "column",
        parts=("weight", "bias"),
    ),
    Row(
        ("visual.merger.mlp.2",),
        f"{_PROJECTOR}.encoder.linear_fc2",
        ("H M",),
        "vision",
        "last",
        "row",
        parts=("weight", "bias"),
    ),
)
VISION_PROJ = Row(
    ("visual.blocks.{layer}.attn.proj",),
    f"{_BLOCK}.self_attention.linear_proj",
    ("VH VH",),
    "vision",
    "layer",
    "row",
    parts=("weight", "bias"),
)
VISION_SHARED = (
    Row(
        ("visual.patch_embed.proj",),
        "image_encoder.encoder.patch_embed.proj",
        ("VH C T P P",),
        "vision",
        "first",
    ),
    VISION_PROJ,
    *PROJECTOR_LINEAR,
)
VISION_QKV_FUSED = Row(
    ("visual.blocks.{layer}.attn.qkv",),
    f"{_BLOCK}.self_attention.linear_qkv",
    ("QKV VH",),
    "vision",
    "layer",
    "column",
    order="vision_heads",
    sections=3,
    parts=("weight", "bias"),
)
# The model reads a rank's rows as thirds [q heads; k heads; v heads], so each rank holds its share
# of every third; the stock converter cuts the stacked rows plainly, which is wrong for TP > 1.
VISION_QKV_CANONICAL = Row(
    ("visual.blocks.{layer}.attn.qkv",),
    f"{_BLOCK}.self_attention.linear_qkv",
    ("QKV VH",),
    "vision",
    "layer",
    "column",
    sections=3,
    parts=("weight", "bias"),
)

VISION_LAYERNORMS = tuple(
    Row(
        (f"visual.blocks.{{layer}}.{hf}",),
        f"{_BLOCK}.{mm}",
        ("VH",),
        "vision",
        "layer",
        parts=("weight", "bias"),
    )
    for hf, mm in (("norm1", "input_layernorm"), ("norm2", "pre_mlp_layernorm"))
)

_VISION = (
    *VISION_SHARED,
    *VISION_LAYERNORMS,
    Row(
        ("visual.blocks.{layer}.mlp.fc1",),
        f"{_BLOCK}.mlp.linear_fc1",
        ("VF VH",),
        "vision",
        "layer",
        "column",
        parts=("weight", "bias"),
    ),
    Row(
        ("visual.blocks.{layer}.mlp.fc2",),
        f"{_BLOCK}.mlp.linear_fc2",
        ("VH VF",),
        "vision",
        "layer",
        "row",
        parts=("weight", "bias"),
    ),
    Row(
        ("visual.merger.ln_q",),
        f"{_PROJECTOR}.layernorm",
        ("VH",),
        "vision",
        "last",
        parts=("weight", "bias"),
    ),
)

LAYERS: dict[Module, str] = {"text": "layers", "vision": "vision_layers"}
NAMINGS = (
    (("visual.", "model.visual."), ("model.", "model.language_model.")),
    (("visual.", "visual."), ("model.", "model.")),
)

QWEN2_VL = Family(
    name="qwen2_vl",
    model_types=("qwen2_vl",),
    dims={
        "VH": "vision_config.embed_dim",
        "VF": "VH * vision_config.mlp_ratio",
        **TEXT_DIMS,
        **VISION_DIMS,
    },
    fused=(*_VISION, VISION_QKV_FUSED, *TEXT_FUSED),
    namings=NAMINGS,
    layers=LAYERS,
    canonical=(*_VISION, VISION_QKV_CANONICAL, *TEXT_CANONICAL),
)
