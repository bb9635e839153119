"""Rules about variants, releases and families: each broken value, its fix, and its valid edge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import Profile, load_profile

TASKS = Path(__file__).parents[3] / "tasks"
FSDP2 = (
    "parallel.fsdp2=true",
    "parallel.tp=1",
    "parallel.text_layers=[80]",
    "parallel.vision_layers=[32]",
    "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2",
)
ONLINE = ("hf.online=true",)
CANONICAL = ("tuning.lora.canonical=true", "tuning.lora.targets=[q_proj]")


def load(model: str, overrides: Sequence[str]) -> Profile:
    return load_profile(TASKS / model / "profile.yaml", overrides)


# model, a valid variant, what breaks it, the message, and the fix
CASES = [
    (
        "qwen2vl-7b",
        ("release=26.0.0",),
        "release=26.1.0",
        "MindSpeed-MM 26.1.0 has no example of Qwen2-VL",
        "use release 2.1.0, 2.2.0, 2.3.0, 26.0.0",
    ),
    (
        "qwen2.5vl-3b",
        ("release=26.1.0",),
        "architecture.vision.window_size=null",
        "qwen2_5_vl needs window_size",
        "copy it from the model's config.json, or set family: qwen2_vl",
    ),
    (
        "qwen2vl-2b",
        ("architecture.vision.window_size=null",),
        "architecture.vision.window_size=112",
        "qwen2_vl has no window_size",
        "leave it out, or set family: qwen2_5_vl",
    ),
    (
        "qwen2vl-2b",
        ("tuning.mode=lora",),
        "tuning.lora.canonical=true",
        "Qwen2-VL has no canonical model",
        "use canonical: false with the targets linear_qkv, linear_proj, linear_fc1, linear_fc2",
    ),
    (
        "qwen2.5vl-7b",
        (*CANONICAL, "parallel.cp=1"),
        "parallel.cp=2",
        "a canonical model with context parallel size 2",
        "use canonical: false, or parallel.cp: 1",
    ),
    (
        "qwen2.5vl-72b",
        (*FSDP2, "release=2.2.0"),
        "release=2.1.0",
        "MindSpeed-MM 2.1.0 has no FSDP2",
        "use release 2.2.0, 2.3.0, 26.0.0, 26.1.0",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "parallel.tp=2",
        "FSDP2 with TP 2 x PP 1",
        "use tp: 1, text_layers: [80] and vision_layers: [32]",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "architecture.text.tied=true",
        "FSDP2 with Qwen2.5-VL-72B-Instruct, whose head is its embedding",
        "use parallel.fsdp2: false",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "tuning.mode=lora",
        "LoRA with FSDP2",
        "use tuning.mode: full, or parallel.fsdp2: false",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "train.fused_gradients=true",
        "train.fused_gradients with FSDP2",
        "set fused_gradients: false",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "hf.online=true",
        "hf.online with FSDP2",
        "set online: false",
    ),
    (
        "qwen2.5vl-72b",
        FSDP2,
        "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=1",
        "CUDA_DEVICE_MAX_CONNECTIONS is 1",
        "set CUDA_DEVICE_MAX_CONNECTIONS: 2",
    ),
    (
        "qwen2.5vl-3b",
        (*ONLINE, "release=26.0.0"),
        "release=2.3.0",
        "MindSpeed-MM 2.3.0 cannot load HF weights",
        "use online: false, or release 26.0.0, 26.1.0",
    ),
    (
        "qwen2.5vl-3b",
        (*ONLINE, "parallel.text_layers=[36]", "parallel.vision_layers=[32]"),
        "parallel.text_layers=[18, 18]",
        "hf.online with 2 stages",
        "use online: false and convert, or lists of one stage",
    ),
    (
        "qwen2.5vl-3b",
        ONLINE,
        "tuning.mode=lora",
        "hf.online with LoRA",
        "use online: false and convert",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.model_json.text_decoder.kv_channels=128",),
        "extra.model_json.text_decoder.kv_chanels=128",
        "MindSpeed-MM has no key kv_chanels in model_json.text_decoder",
        "did you mean 'kv_channels'?",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.data_json.dataset_param.basic_parameters.preprocess_on_fly=true", "release=2.3.0"),
        "release=2.2.0",
        "MindSpeed-MM 2.2.0 has no key preprocess_on_fly in "
        "data_json.dataset_param.basic_parameters",
        "use release 2.3.0 or later, or leave the key out",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.data_json.dataset_param.attr.formatting=sharegpt",),
        "extra.data_json.dataset_param.basic_parameters.cutoff_len=5",
        "MindSpeed-MM has no key cutoff_len in data_json.dataset_param.basic_parameters",
        "use one of: ",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.model_json.patch.bridge_patch=false",),
        "extra.model_json.patch=false",
        "model_json.patch cannot be False",
        "give the keys below it",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--exit-signal-handler=true",),
        "extra.flags.--exit-signal-handlers=true",
        "MindSpeed-MM 26.1.0 has no flag --exit-signal-handlers",
        "did you mean '--exit-signal-handler'",
    ),
    (
        "qwen2.5vl-7b",
        ("train.recompute=full",),
        "extra.flags.--recompute-granularity=full",
        "the flag --recompute-granularity has no effect",
        "use the keys of architecture and train.recompute",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--exit-interval=100",),
        "extra.flags.--exit-interval=soon",
        "the flag --exit-interval cannot be 'soon'",
        "give a whole number",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--log-throughput=true",),
        "extra.flags.--log-throughput=1",
        "the flag --log-throughput cannot be 1",
        "give true; it takes no value",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--start-weight-decay=0.1",),
        "extra.flags.--start-weight-decay=true",
        "the flag --start-weight-decay cannot be true",
        "give a number",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--tensorboard-dir=runs",),
        "extra.flags.--tensorboard-dir=[a, b]",
        "the flag --tensorboard-dir cannot be 'a' 'b'",
        "give one value",
    ),
    (
        "qwen2.5vl-7b",
        ("extra.flags.--dataloader-type=cyclic",),
        "extra.flags.--dataloader-type=cyclical",
        "the flag --dataloader-type cannot be 'cyclical'",
        "give single or cyclic or external",
    ),
    (
        "qwen2.5vl-72b",
        ("generate.text_layers=[20, 60]", "generate.vision_layers=[32, 0]"),
        "generate.vision_layers=null",
        "generate names the layers of one part only",
        "give text_layers and vision_layers, or neither",
    ),
    (
        "qwen2.5vl-72b",
        ("generate.text_layers=[20, 60]", "generate.vision_layers=[32, 0]"),
        "generate.text_layers=[20, 61]",
        "text_layers [20, 61] holds 81 layers, Qwen2.5-VL-72B-Instruct has 80",
        "take away 1, as in [20, 60]",
    ),
    (
        "qwen2.5vl-72b",
        ("generate.text_layers=[20, 60]", "generate.vision_layers=[32, 0]"),
        "generate.vision_layers=[0, 32]",
        "vision ends on stage 1, but text starts on stage 0",
        "move the text layers to stage 1 and later, or the vision layers to stage 0 and earlier: "
        "vision_layers [32, 0]",
    ),
]


@pytest.mark.parametrize(("model", "valid", "broken", "what", "fix"), CASES)
def test_a_broken_variant_says_what_and_how_to_fix_it(
    model: str, valid: tuple[str, ...], broken: str, what: str, fix: str
) -> None:
    load(model, valid)
    with pytest.raises(ProfileError) as caught:
        load(model, [*valid, broken])
    blocks = str(caught.value).split("error: ")
    block = next((block for block in blocks if block.splitlines()[:1] == [what]), None)
    assert block is not None, str(caught.value)
    assert f"  fix:   {fix}" in block
    assert "  where: --set " in block


@pytest.mark.parametrize("media", ["images", "videos", "none"])
def test_every_kind_of_media_is_a_valid_profile(media: str) -> None:
    assert load("qwen2.5vl-7b", [f"data.media={media}"]).data.media == media


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", 1), ("0.5", 0.5), ("[a, b]", ("a", "b"))]
)
def test_an_extra_value_keeps_its_type(text: str, value: object) -> None:
    profile = load("qwen2.5vl-7b", [f"extra.model_json.text_decoder.kv_channels={text}"])
    assert profile.extra.model_json["text_decoder"] == {
        "bias_activation_fusion": True,
        "kv_channels": value,
    }
