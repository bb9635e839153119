"""Rules between keys: each fault's full text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import Profile, load_profile

Edit = Callable[[dict[str, str]], Path]

# layouts other than TP 2 x PP 8 that fit two nodes of 8
PP4 = ("parallel.text_layers=[13, 17, 17, 17]", "parallel.vision_layers=[32, 0, 0, 0]")
VPP2 = (
    "parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]",
    "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
)


def faults(edit: Edit, overrides: Sequence[str]) -> list[ProfileError]:
    with pytest.raises(ProfileError) as caught:
        load_profile(edit({}), overrides)
    return [caught.value, *caught.value.also]  # type: ignore[list-item]


def one_fault(edit: Edit, *overrides: str) -> list[str]:
    found = faults(edit, overrides)
    assert len(found) == 1, [error.what for error in found]
    return str(found[0]).splitlines()


CASES = {
    "text layers must add up to the model": (
        ["parallel.text_layers=[4, 9, 9, 9, 9, 9, 9, 7]"],
        "text_layers [4, 9, 9, 9, 9, 9, 9, 7] holds 65 layers, Qwen2.5-VL-32B-Instruct has 64",
        "--set parallel.text_layers=[4, 9, 9, 9, 9, 9, 9, 7] (parallel.text_layers)",
        "every layer lives on exactly one stage",
        "take away 1, as in [4, 9, 9, 9, 9, 9, 9, 6] or [4, 8, 9, 9, 9, 9, 9, 7]",
    ),
    "vision layers must add up to the model": (
        ["parallel.vision_layers=[30, 0, 0, 0, 0, 0, 0, 0]"],
        "vision_layers [30, 0, 0, 0, 0, 0, 0, 0] holds 30 layers, Qwen2.5-VL-32B-Instruct has 32",
        "--set parallel.vision_layers=[30, 0, 0, 0, 0, 0, 0, 0] (parallel.vision_layers)",
        "every layer lives on exactly one stage",
        "add 2, as in [32, 0, 0, 0, 0, 0, 0, 0]",
    ),
    "both lists must have the same length": (
        ["parallel.vision_layers=[32]"],
        "vision_layers has 1 stage, text_layers has 8 stages",
        "--set parallel.vision_layers=[32] (parallel.vision_layers)",
        "both lists count the same pipeline; only special trainers accept a shorter one",
        "give vision_layers 8 stages, with 0 where no vision layer lives",
    ),
    "both lists must have the same virtual stages": (
        ["tuning.mode=full", VPP2[0], PP4[1]],
        "vision_layers has 4 stages, text_layers has 2 lists of 4 stages",
        "--set parallel.vision_layers=[32, 0, 0, 0] (parallel.vision_layers)",
        "both lists count the same pipeline; only special trainers accept a shorter one",
        "give vision_layers 2 lists of 4 stages, with 0 where no vision layer lives",
    ),
    "vision must end where text starts or before": (
        ["parallel.vision_layers=[30, 2, 0, 0, 0, 0, 0, 0]"],
        "vision ends on stage 1, but text starts on stage 0",
        "--set parallel.vision_layers=[30, 2, 0, 0, 0, 0, 0, 0] (parallel.vision_layers)",
        "text reads what vision has finished, so vision must end no later",
        "move the text layers to stage 1 and later, or the vision layers to stage 0 and earlier: "
        "vision_layers [32, 0, 0, 0, 0, 0, 0, 0]",
    ),
    "every stage must hold a layer": (
        ["parallel.text_layers=[4, 9, 9, 0, 18, 9, 9, 6]"],
        "stage 3 holds no layer",
        "--set parallel.text_layers=[4, 9, 9, 0, 18, 9, 9, 6] (parallel.text_layers)",
        "each stage passes on what its own layers computed",
        "give every stage a layer, or use fewer stages",
    ),
    "tp must divide heads and rows": (
        ["parallel.tp=16", "platform.nodes=16"],
        "parallel.tp 16 does not divide the 8 query groups of Qwen2.5-VL-32B-Instruct",
        "--set parallel.tp=16 (parallel.tp)",
        "each rank must hold whole query groups",
        "use 1, 2, 4 or 8",
    ),
    "tp must divide the vocabulary": (
        ["architecture.text.vocab_size=152065"],
        "parallel.tp 2 does not divide the 152065 vocabulary rows of Qwen2.5-VL-32B-Instruct",
        "tasks/qwen2.5vl-32b/profile.yaml:44 (parallel.tp)",
        "each rank must hold whole vocabulary rows",
        "use 1",
    ),
    "tp must divide the vision feed-forward rows": (
        ["architecture.vision.ffn_hidden_size=3421"],
        "parallel.tp 2 does not divide the 3421 feed-forward rows of vision of "
        "Qwen2.5-VL-32B-Instruct",
        "tasks/qwen2.5vl-32b/profile.yaml:44 (parallel.tp)",
        "each rank must hold whole feed-forward rows of vision",
        "use 1",
    ),
    "vision cannot have a tensor parallel size of its own": (
        ["parallel.vision_tp=1"],
        "parallel.vision_tp 1 differs from parallel.tp 2",
        "--set parallel.vision_tp=1 (parallel.vision_tp)",
        "the rendered launch trains vision and text in the same tensor parallel groups",
        "leave vision_tp out, or set it to 2",
    ),
    "ulysses shares whole heads": (
        ["parallel.cp=8", "platform.nodes=16"],
        "parallel.cp 8 with tp 2 does not divide 40 heads",
        "--set parallel.cp=8 (parallel.cp)",
        "ulysses_cp_algo shares whole heads between tp x cp ranks",
        "use 1, 2, 4, 5, 10 or 20, or cp_algo: megatron_cp_algo",
    ),
    "virtual stages need more than two stages": (
        [
            "tuning.mode=full",
            "parallel.text_layers=[[16, 16], [16, 16]]",
            "parallel.vision_layers=[[32, 0], [0, 0]]",
        ],
        "2 virtual stages on 2 stages",
        "--set parallel.text_layers=[[16, 16], [16, 16]] (parallel.text_layers)",
        "the interleaved schedule needs more than 2 stages",
        "use flat lists, or 3 stages and more",
    ),
    "LoRA does not run on virtual stages": (
        VPP2,
        "LoRA with 2 virtual stages",
        f"--set {VPP2[0]} (parallel.text_layers)",
        "the trainer does not support adapters on virtual stages",
        "use flat lists, or tuning.mode: full",
    ),
    "one node of 8 cannot hold the 32B layout": (
        ["platform.nodes=1"],
        "1 x 8 NPUs do not hold whole copies of TP 2 x PP 8 x CP 1 = 16 NPUs",
        "--set platform.nodes=1 (platform.nodes)",
        "every copy of the model needs all of its NPUs",
        "use 2 nodes of 8 NPUs or a multiple of 2",
    ),
    "three nodes do not hold whole copies": (
        ["platform.nodes=3"],
        "3 x 8 NPUs do not hold whole copies of TP 2 x PP 8 x CP 1 = 16 NPUs",
        "--set platform.nodes=3 (platform.nodes)",
        "every copy of the model needs all of its NPUs",
        "use 2 nodes of 8 NPUs or a multiple of 2",
    ),
    "head width follows from heads and hidden size": (
        ["architecture.text.head_dim=64", "architecture.text.mrope_section=[8, 12, 12]"],
        "40 heads of 64 are not the hidden size 5120",
        "--set architecture.text.head_dim=64 (architecture.text.head_dim)",
        "the trainer takes hidden_size / attention_heads as the width of a head",
        "copy hidden_size, attention_heads and head_dim from the model's config.json",
    ),
    "query groups divide the heads": (
        ["architecture.text.query_groups=6"],
        "6 query groups do not divide 40 heads",
        "--set architecture.text.query_groups=6 (architecture.text.query_groups)",
        "each group holds the same number of query heads",
        "use 1, 2, 4, 5, 8, 10, 20 or 40",
    ),
    "mrope sections make half a head": (
        ["architecture.text.mrope_section=[16, 24, 25]"],
        "mrope_section [16, 24, 25] adds up to 65",
        "--set architecture.text.mrope_section=[16, 24, 25] (architecture.text.mrope_section)",
        "its sum is half of head_dim 128",
        "copy rope_scaling.mrope_section from the model's config.json",
    ),
    "vision heads divide the vision width": (
        ["architecture.vision.attention_heads=12"],
        "12 vision heads do not divide the hidden size 1280",
        "--set architecture.vision.attention_heads=12 (architecture.vision.attention_heads)",
        "each head has the same width",
        "use 1, 2, 4, 5, 8, 10, 16, 20, 32, 40 or 64",
    ),
    "windows hold whole tokens": (
        ["architecture.vision.window_size=100"],
        "a window of 100 pixels cuts tokens of 28 pixels",
        "--set architecture.vision.window_size=100 (architecture.vision.window_size)",
        "windows hold whole tokens of patch_size x spatial_merge_size",
        "use a multiple of 28",
    ),
    "full attention layers exist": (
        ["architecture.vision.full_attention_layers=[7, 32]"],
        "full_attention_layers names layer 32 of 32",
        "--set architecture.vision.full_attention_layers=[7, 32] "
        "(architecture.vision.full_attention_layers)",
        "layers are counted from 0",
        "use numbers from 0 to 31",
    ),
    "the release is known": (
        ["release=26.2.0"],
        "release '26.2.0' of MindSpeed-MM is not known",
        "--set release=26.2.0 (release)",
        "flags and files differ between releases",
        "did you mean '2.2.0' or '26.1.0' or '26.0.0'?",
    ),
    "accumulation and global exclude each other": (
        ["batch.accumulation=96", "batch.global=96"],
        "both accumulation and global are given",
        "--set batch.global=96 (batch.global)",
        "each follows from the other: global = micro x accumulation x DP",
        "keep one of the two",
    ),
    "accumulation or global is needed": (
        ["batch.accumulation=null"],
        "neither accumulation nor global is given",
        "tasks/qwen2.5vl-32b/profile.yaml:49 (batch)",
        "each follows from the other: global = micro x accumulation x DP",
        "add accumulation or global",
    ),
    "a global batch is a multiple of micro and DP": (
        ["batch.accumulation=null", "batch.global=50", "batch.micro=4", "platform.nodes=4"],
        "batch.global 50 is not a multiple of micro 4 x DP 2 = 8",
        "--set batch.global=50 (batch.global)",
        "every copy of the model computes whole micro batches",
        "use 48 or 56",
    ),
    "a global batch holds at least one sample per copy": (
        ["batch.accumulation=null", "batch.global=3", "batch.micro=4"],
        "batch.global 3 is not a multiple of micro 4 x DP 1 = 4",
        "--set batch.global=3 (batch.global)",
        "every copy of the model computes whole micro batches",
        "use 4",
    ),
    "the learning rate falls": (
        ["train.min_lr=1.0"],
        "train.min_lr 1.0 is above train.lr 1e-05",
        "--set train.min_lr=1.0 (train.min_lr)",
        "the learning rate falls from lr to min_lr",
        "use a value from 0 to 1e-05",
    ),
    "samples are no longer than the model allows": (
        ["train.seq_length=131072"],
        "train.seq_length 131072 exceeds the model's 128000 positions",
        "--set train.seq_length=131072 (train.seq_length)",
        "the model was not made for longer sequences",
        "use at most 128000",
    ),
    "frozen parts are a set": (
        ["train.freeze=[vision, vision]"],
        "train.freeze ['vision', 'vision'] names a part twice",
        "--set train.freeze=[vision, vision] (train.freeze)",
        "it is a set of parts",
        "name each part once",
    ),
    "selective recompute does not go with LoRA": (
        ["train.recompute=selective"],
        "train.recompute selective with LoRA",
        "--set train.recompute=selective (train.recompute)",
        "the trainer refuses to recompute core attention around adapters",
        "use full or none",
    ),
    "LoRA targets exist": (
        ["tuning.lora.targets=[linear_qkv, linear_porj]"],
        "LoRA target 'linear_porj' is no module of the fused model",
        "--set tuning.lora.targets=[linear_qkv, linear_porj] (tuning.lora.targets[1])",
        "a target that names nothing would silently stay without adapter",
        "did you mean 'linear_proj' or 'linear_qkv' or 'linear_fc2'?",
    ),
    "canonical targets differ from fused ones": (
        ["tuning.lora.canonical=true"],
        "LoRA target 'linear_fc1' is no module of the canonical model",
        "tasks/qwen2.5vl-32b/profile.yaml:75 (tuning.lora.targets[2])",
        "a target that names nothing would silently stay without adapter",
        "did you mean 'linear_fc2' or 'linear_qkv' or 'linear_proj'?",
    ),
    "LoRA needs a target": (
        ["tuning.lora.targets=[]"],
        "tuning.lora.targets is empty",
        "--set tuning.lora.targets=[] (tuning.lora.targets)",
        "no module would get an adapter",
        "use linear_qkv, linear_proj, linear_fc1, linear_fc2",
    ),
    "LoRA targets are a set": (
        ["tuning.lora.targets=[linear_qkv, linear_qkv]"],
        "LoRA target 'linear_qkv' is named twice",
        "--set tuning.lora.targets=[linear_qkv, linear_qkv] (tuning.lora.targets[1])",
        "it is a set of modules",
        "name it once",
    ),
    "old releases have no canonical model": (
        ["release=2.2.0", "tuning.lora.canonical=true", "tuning.lora.targets=[q_proj]"],
        "MindSpeed-MM 2.2.0 has no canonical model",
        "--set tuning.lora.canonical=true (tuning.lora.canonical)",
        "it knows q, k, v, gate and up only as fused modules",
        "use canonical: false, or release 2.3.0, 26.0.0, 26.1.0",
    ),
    "there is data": (
        ["data.files=[]"],
        "data.files is empty",
        "--set data.files=[] (data.files)",
        "there is nothing to train on",
        "name at least one file",
    ),
    "data files hold no space": (
        ["data.files=[a.json, ' b.json']"],
        "data file ' b.json' has a space or a comma in its name",
        "--set data.files=[a.json, ' b.json'] (data.files[1])",
        "the trainer joins the names by commas and does not trim them",
        "rename the file, or give each file an entry of its own",
    ),
    "pixel limits leave room": (
        ["data.image_min_pixels=300000"],
        "data.image_min_pixels 300000 is above image_max_pixels 262144",
        "--set data.image_min_pixels=300000 (data.image_min_pixels)",
        "no picture can satisfy both",
        "use at most 262144",
    ),
    "environment names are names": (
        ["platform.env.A-B=1"],
        "'A-B' cannot be the name of an environment variable",
        "--set platform.env.A-B=1 (platform.env.A-B)",
        "a shell takes letters, digits and _, and no digit first",
        "rename it",
    ),
    "Megatron checks the connections": (
        ["platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2"],
        "CUDA_DEVICE_MAX_CONNECTIONS is 2",
        "--set platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2 "
        "(platform.env.CUDA_DEVICE_MAX_CONNECTIONS)",
        "Megatron checks that it is 1",
        "set CUDA_DEVICE_MAX_CONNECTIONS: 1",
    ),
    "values mean themselves in a shell": (
        ["paths.save=$HOME/save"],
        "'$HOME/save' holds the character '$'",
        "--set paths.save=$HOME/save (paths.save)",
        "the value stands in quotes in the rendered scripts, where it means something else",
        "write the value itself; the environment can override it at launch",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule_says_what_where_why_and_how_to_fix_it(name: str, edit: Edit) -> None:
    overrides, what, where, why, fix = CASES[name]
    assert one_fault(edit, *overrides) == [
        f"error: {what}",
        f"  where: {where}",
        f"  why:   {why}",
        f"  fix:   {fix}",
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ["platform.nodes=4"],
        ["platform.nodes=1", "platform.npus_per_node=16"],
        ["parallel.cp_algo=megatron_cp_algo", "parallel.cp=4", "platform.nodes=8"],
        ["tuning.mode=full", "train.recompute=selective"],
        ["tuning.mode=full", *VPP2],
        ["parallel.vision_tp=2"],
        ["parallel.tp=8", *PP4, "platform.nodes=4"],
        ["tuning.lora.canonical=true", "tuning.lora.targets=[q_proj, gate_proj, linear_qkv]"],
        [
            "parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]",
            "parallel.vision_layers=[30, 2, 0, 0, 0, 0, 0, 0]",
        ],
        ["release=2.1.0"],
    ],
)
def test_a_combination_that_the_trainer_runs_is_accepted(
    overrides: list[str], load: Callable[..., Profile]
) -> None:
    assert load(*overrides).dp >= 1


@pytest.mark.parametrize(
    ("overrides", "frozen"),
    [
        ([], ()),
        (["parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]"], (0,)),
        (["parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]", "train.freeze=[projector]"], ()),
        (["parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]", "train.freeze=[vision]"], ()),
        (
            [
                "parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]",
                "parallel.vision_layers=[30, 2, 0, 0, 0, 0, 0, 0]",
                "train.freeze=[vision]",
            ],
            (0,),
        ),
    ],
)
def test_a_stage_of_frozen_vision_alone_needs_a_dummy_optimizer(
    overrides: list[str], frozen: tuple[int, ...], load: Callable[..., Profile]
) -> None:
    profile = load(*overrides)
    assert profile.frozen_stages == frozen
    assert profile.needs_dummy_optimizer == bool(frozen)
