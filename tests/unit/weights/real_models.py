"""Tiny models of the real classes, inputs with an image for them, and peft adapters on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

IMAGE = 299
VISION_START = 298
R, ALPHA = 4, 12.0
TEXT = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TARGETS = {
    "text": rf".*language_model.*({'|'.join(TEXT)})",
    "vision": r".*visual\.blocks.*(qkv|attn\.proj|gate_proj|up_proj|down_proj|fc1|fc2)",
    "both": rf".*(language_model.*({'|'.join(TEXT)})|visual\.blocks.*(qkv|attn\.proj))",
    "all": rf".*({'|'.join(TEXT)}|qkv|attn\.proj|fc1|fc2|merger\.mlp\.[02])",
    "attention": r".*language_model.*(q_proj|v_proj)",
}


def real_model(family: str, *, tied: bool) -> Any:
    import transformers

    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 320,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]},
    }
    if family == "qwen2_5_vl":
        vision = {
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_heads": 4,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        }
        config = transformers.Qwen2_5_VLConfig(
            text_config=text, vision_config=vision, tie_word_embeddings=tied, image_token_id=IMAGE
        )
        kind = transformers.Qwen2_5_VLForConditionalGeneration
    else:
        vision = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2}
        config = transformers.Qwen2VLConfig(
            text_config=text, vision_config=vision, tie_word_embeddings=tied, image_token_id=IMAGE
        )
        kind = transformers.Qwen2VLForConditionalGeneration
    torch.manual_seed(5)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.05)
    return model


def logits(model: Any) -> torch.Tensor:
    """Run a prompt with one image of 4 x 4 patches, which become 4 tokens."""
    image = [VISION_START, *[IMAGE] * 4]
    ids = torch.tensor([[20, 21, 22, *image, *range(30, 50)]])
    vision = model.config.vision_config
    torch.manual_seed(1)
    pixels = torch.randn(16, 3 * vision.temporal_patch_size * vision.patch_size**2)
    with torch.no_grad():
        return model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=pixels.to(next(model.parameters()).dtype),
            image_grid_thw=torch.tensor([[1, 4, 4]]),
            mm_token_type_ids=(ids == IMAGE).long(),
        ).logits


def adapted(model: Any, targets: str, *, equal_a: bool = False, **settings: Any) -> Any:
    """Wrap a model with a random adapter; q, k, v and gate, up share lora_A where asked."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=R, lora_alpha=ALPHA, target_modules=TARGETS[targets], **settings)
    wrapped = get_peft_model(model, config).eval()
    torch.manual_seed(2)
    parameters = dict(wrapped.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            if ".lora_" in name:
                parameter.normal_(0, 0.1)
        for name, parameter in parameters.items():
            twin = first_of_fused(name)
            if equal_a and ".lora_A." in name and twin in parameters:
                parameter.copy_(parameters[twin])
    return wrapped


def first_of_fused(name: str) -> str:
    """Name the module that MindSpeed-MM fuses a module to, itself in most cases."""
    for which, first in (("k_proj", "q_proj"), ("v_proj", "q_proj"), ("up_proj", "gate_proj")):
        name = name.replace(which, first)
    return name


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    """Read every safetensors file of a folder."""
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(str(path))
    return found


def equal(a: Path, b: Path) -> bool:
    """Tell whether two folders hold the same tensors by name, bit for bit."""
    one, two = tensors_in(a), tensors_in(b)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def even(total: int, stages: int) -> Sequence[int]:
    """Share layers out evenly."""
    return [total // stages] * stages
