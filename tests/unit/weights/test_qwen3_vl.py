"""Qwen3-VL, dense and with experts: a third family that is only a table.

The places expected here are written from the rules: MindSpeed-MM holds each expert as `[out, in]`
with gate above up; the hub stacks experts as `[expert, in, out]`, transformers 5
saves them upright.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import Refusals, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from taskpack.errors import CheckFailed
from taskpack.parallel import PipelineSplit
from taskpack.weights import Layout, hf_to_mm, mm_to_hf, resplit, verify_account, verify_equal
from taskpack.weights.sides import rank_folders

pytestmark = pytest.mark.torch
Capture = pytest.CaptureFixture[str]

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,  # not hidden_size / heads
    "vocab_size": 64,
    "rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default"},
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}  # a gate_up of 32 x 32: its shape does not tell how it lies
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "depth": 3,
    "num_heads": 2,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 2],
    "patch_size": 4,
    "in_channels": 3,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
FFN = 16
GATE_UP = "model.language_model.layers.{}.mlp.experts.gate_up_proj"
DOWN = "model.language_model.layers.{}.mlp.experts.down_proj"


def model_class(kind: str) -> Any:
    import transformers

    return getattr(transformers, f"Qwen3VL{'Moe' if kind == 'moe' else ''}ForConditionalGeneration")


def make_hf(folder: Path, kind: str) -> Path:
    import transformers

    config_class = getattr(transformers, f"Qwen3VL{'Moe' if kind == 'moe' else ''}Config")
    experts = EXPERTS if kind == "moe" else {}
    config = config_class(text_config={**TEXT, **experts}, vision_config=VISION)
    torch.manual_seed(0)
    model_class(kind)(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def as_on_the_hub(upright: Path, folder: Path) -> Path:
    """Store the experts `[expert, in, out]`, as the published checkpoints have them."""
    folder.mkdir()
    (folder / "config.json").write_text((upright / "config.json").read_text())
    tensors = load_file(upright / "model.safetensors")
    turned = {
        name: value.transpose(1, 2).contiguous() if ".experts." in name else value
        for name, value in tensors.items()
    }
    save_file(turned, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("in")
    made = {kind: make_hf(root / kind, kind) for kind in ("dense", "moe")}
    return {**made, "hub": as_on_the_hub(made["moe"], root / "hub")}


def layout(tp: int, text: list[Any], vision: list[Any], ep: int = 1) -> Layout:
    return Layout(tp, PipelineSplit.parse(text), PipelineSplit.parse(vision), ep_size=ep)


def state(mm: Path, rank: str) -> dict[str, torch.Tensor]:
    path = mm / "release" / rank / "model_optim_rng.pt"
    return dict(torch.load(path, weights_only=True)["model"])


@pytest.mark.parametrize("form", ["moe", "hub"])
def test_experts_land_upright_on_their_rank(
    form: str, models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models[form], tmp_path / "mm", layout=layout(2, [1, 2], [3, 0], ep=2))
    upright = load_file(models["moe"] / "model.safetensors")
    # stage 1 holds layers 1 and 2; expert rank 1 holds experts 2 and 3; tensor rank 1 the 2nd half
    rank = state(tmp_path / "mm", "mp_rank_01_001_001")
    names = {name for name in rank if "local_experts" in name}
    assert {name.split("local_experts.")[1].split(".")[0] for name in names} == {"0", "1"}
    for local_layer, layer in ((0, 1), (1, 2)):
        for local, expert in ((0, 2), (1, 3)):
            at = f"text_decoder.decoder.layers.{local_layer}.mlp.experts.local_experts.{local}"
            both = upright[GATE_UP.format(layer)][expert]
            gate, up = both[:FFN], both[FFN:]
            wanted = torch.cat([gate[FFN // 2 :], up[FFN // 2 :]])
            assert torch.equal(rank[f"{at}.linear_fc1.weight"], wanted)
            down = upright[DOWN.format(layer)][expert]
            assert torch.equal(rank[f"{at}.linear_fc2.weight"], down[:, FFN // 2 :])


def test_everything_but_experts_is_the_same_on_each_expert_rank(
    models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models["hub"], tmp_path / "mm", layout=layout(1, [3], [3], ep=4))
    ranks = [state(tmp_path / "mm", f"mp_rank_00_{ep:03d}") for ep in range(4)]
    for rank in ranks[1:]:
        assert rank.keys() == ranks[0].keys()
        different = {name for name in rank if not torch.equal(rank[name], ranks[0][name])}
        assert different == {name for name in rank if "local_experts" in name}


def test_deepstack_mergers_travel_with_their_vision_layer(
    models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models["dense"], tmp_path / "mm", layout=layout(2, [1, 2], [2, 1]))
    hf = load_file(models["dense"] / "model.safetensors")
    # layer 2 is local layer 0 of stage 1 and has the second merger; layer 1 has none
    stages = [state(tmp_path / "mm", f"mp_rank_01_00{stage}") for stage in (0, 1)]
    found = [sorted(name for name in stage if "deepstack" in name) for stage in stages]
    assert all(".layers.0." in name for stage in found for name in stage)
    assert [len(stage) for stage in found] == [6, 6]
    for index, stage in enumerate(stages):
        block = "image_encoder.encoder.blocks.layers.0.deepstack_layer"
        merger = f"model.visual.deepstack_merger_list.{index}"
        assert torch.equal(stage[f"{block}.layernorm.weight"], hf[f"{merger}.norm.weight"])
        fc1, fc2 = (hf[f"{merger}.linear_fc{number}.weight"] for number in (1, 2))
        assert torch.equal(stage[f"{block}.encoder.linear_fc1.weight"], fc1[32:])
        assert torch.equal(stage[f"{block}.encoder.linear_fc2.weight"], fc2[:, 32:])
        assert torch.equal(
            stage[f"{block}.encoder.linear_fc2.bias"], hf[f"{merger}.linear_fc2.bias"]
        )


def test_qkv_uses_the_width_of_a_head_from_the_config(
    models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models["dense"], tmp_path / "mm", layout=layout(2, [3], [3]))
    hf = load_file(models["dense"] / "model.safetensors")
    q, k, v = (
        hf[f"model.language_model.layers.0.self_attn.{which}_proj.weight"] for which in "qkv"
    )
    rank = state(tmp_path / "mm", "mp_rank_01")
    attention = "text_decoder.decoder.layers.0.self_attention"
    # rank 1 has group 1: query heads 2 and 3, one key and one value head, all 16 wide
    wanted = torch.cat([q[32:64], k[16:32], v[16:32]])
    assert torch.equal(rank[f"{attention}.linear_qkv.weight"], wanted)
    assert rank[f"{attention}.q_layernorm.weight"].shape == (16,)
    assert f"{attention}.linear_qkv.bias" not in rank


@pytest.mark.parametrize("form", ["dense", "moe", "hub"])
def test_the_model_comes_back_bit_for_bit(
    form: str, models: dict[str, Path], tmp_path: Path
) -> None:
    ep = 1 if form == "dense" else 2
    hf_to_mm(models[form], tmp_path / "a", layout=layout(2, [1, 2], [3, 0], ep))
    resplit(tmp_path / "a", tmp_path / "b", target=layout(1, [[1], [2]], [[1], [2]], ep))
    mm_to_hf(tmp_path / "b", models[form], tmp_path / "hf")
    written = (tmp_path / "hf" / "model.safetensors").read_bytes()
    tensors, original = (
        load_file(d / "model.safetensors") for d in (tmp_path / "hf", models[form])
    )
    assert tensors.keys() == original.keys()
    assert all(torch.equal(tensors[name], value) for name, value in original.items())
    verify_equal(models[form], tmp_path / "b")
    assert verify_account(tmp_path / "hf")["equal"]
    if form == "moe":
        assert written == (models[form] / "model.safetensors").read_bytes()


@pytest.mark.parametrize("form", ["dense", "hub"])
def test_the_real_class_gives_the_same_logits(
    form: str, models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models[form], tmp_path / "mm", layout=layout(2, [1, 2], [3, 0]))
    reference = models["moe" if form == "hub" else form]
    # a checkpoint cut from the hub's form, exported in the form of transformers 5
    mm_to_hf(tmp_path / "mm", reference, tmp_path / "hf")
    logits = []
    for folder in (reference, tmp_path / "hf"):
        model = model_class("dense" if form == "dense" else "moe").from_pretrained(folder).eval()
        with torch.no_grad():
            logits.append(model(input_ids=torch.arange(12)[None]).logits)
    assert torch.equal(*logits)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_layout_leads_to_any_other(
    data: st.DataObject, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    form = data.draw(st.sampled_from(["dense", "moe", "hub"]))
    root = tmp_path_factory.mktemp("any")
    cuts = st.sampled_from(
        [([3], [3]), ([0, 3], [3, 0]), ([1, 2], [1, 2]), ([[1, 0], [1, 1]],) * 2]
    )
    experts = st.sampled_from([1] if form == "dense" else [1, 2, 4])
    first, second = (
        layout(data.draw(st.sampled_from([1, 2])), *data.draw(cuts), data.draw(experts))
        for _ in range(2)
    )
    hf_to_mm(models[form], root / "a", layout=first)
    resplit(root / "a", root / "b", target=second)
    verify_equal(root / "a", root / "b")
    mm_to_hf(root / "b", models[form], root / "hf")
    assert verify_equal(models[form], root / "hf")["equal"]
    written, original = (load_file(d / "model.safetensors") for d in (root / "hf", models[form]))
    assert all(torch.equal(written[name], value) for name, value in original.items())


@pytest.mark.parametrize(
    "cut", [layout(2, [1, 2], [3, 0], 2), layout(1, [3], [3], 4), layout(1, [1, 2], [3, 0])]
)
def test_expert_ranks_are_told_from_stages_without_a_layout_file(
    cut: Layout, models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models["hub"], tmp_path / "mm", layout=cut)
    (tmp_path / "mm" / "taskpack_layout.json").unlink()
    mm_to_hf(tmp_path / "mm", models["hub"], tmp_path / "hf")
    assert verify_equal(models["hub"], tmp_path / "hf")["equal"]


@pytest.mark.parametrize("name", [GATE_UP.format(1), DOWN.format(2), GATE_UP.format(0)])
def test_one_changed_element_of_an_expert_is_found(
    name: str, models: dict[str, Path], tmp_path: Path
) -> None:
    hf_to_mm(models["hub"], tmp_path / "mm", layout=layout(2, [1, 2], [3, 0], ep=2))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((models["hub"] / "config.json").read_text())
    tensors = load_file(models["hub"] / "model.safetensors")
    tensors[name][3, 5, 7] += 1
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(CheckFailed, match=r"1 tensors differ"):
        verify_equal(broken, tmp_path / "mm")


def test_each_host_writes_the_experts_of_its_ranks(models: dict[str, Path], tmp_path: Path) -> None:
    flags = ("--tp", "2", "--ep", "2", "--llm-layers", "[1,2]", "--vit-layers", "[3,0]")
    source = ("convert", "hf-to-mm", "--hf", str(models["hub"]))
    assert run(*source, "--mm", str(tmp_path / "whole"), *flags) == 0
    for host, ranks in enumerate(("0-3", "4-7")):
        target = str(tmp_path / f"host{host}")
        assert run(*source, "--mm", target, *flags, "--ranks", ranks) == 0
    # Megatron's order is tp, ep, pp: ranks 4 to 7 are stage 1
    second = sorted(path.name for path in (tmp_path / "host1" / "release").iterdir())
    assert second == [f"mp_rank_{tp:02d}_001_{ep:03d}" for tp in (0, 1) for ep in (0, 1)]
    for path in (tmp_path / "whole").rglob("*.pt"):
        inside = path.relative_to(tmp_path / "whole")
        parts = [tmp_path / host / inside for host in ("host0", "host1")]
        assert [part.read_bytes() for part in parts if part.exists()] == [path.read_bytes()]


def test_data_parallel_copies_of_experts_share_a_folder() -> None:
    cut = layout(2, [3], [3], ep=2)
    assert rank_folders(cut, [0, 4], world_size=8) == {"mp_rank_00_000"}
    assert rank_folders(cut, [3, 7], world_size=8) == {"mp_rank_01_001"}


@pytest.mark.parametrize(
    ("form", "flags", "message"),
    [
        ("hub", ("--ep", "3"), "expert parallel size 3 does not divide the 4 experts"),
        ("hub", ("--ep", "0"), "expert parallel size 0 does not divide the 4 experts"),
        ("dense", ("--ep", "2"), "expert parallel size 2 for a model without experts"),
        ("hub", ("--canonical",), "the family qwen3_vl_moe has no canonical structure"),
    ],
)
def test_an_impossible_layout_is_refused(
    form: str,
    flags: tuple[str, ...],
    message: str,
    models: dict[str, Path],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    mm = tmp_path / "mm"
    shape = ("--tp", "1", "--llm-layers", "[3]", "--vit-layers", "[3]", *flags)
    command = ("convert", "hf-to-mm", "--hf", models[form], "--mm", mm, *shape)
    assert message in Refusals(capsys)(2, *command, out=mm)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deepstack_visual_indexes": [0, 3]}, "deepstack names layer 3, but there are 3"),
        ({"deepstack_visual_indexes": "0"}, "no usable value for"),
        ({"deepstack_visual_indexes": [0]}, "tensors are not of this model"),
        ({"num_position_embeddings": 25}, "has shape [16, 16], not [25, 16]"),
    ],
)
def test_a_config_of_another_model_is_refused(
    change: dict[str, Any],
    message: str,
    models: dict[str, Path],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    hf, mm = tmp_path / "hf", tmp_path / "mm"
    hf.mkdir()
    config = json.loads((models["dense"] / "config.json").read_text())
    config["vision_config"] |= change
    (hf / "config.json").write_text(json.dumps(config))
    (hf / "model.safetensors").symlink_to(models["dense"] / "model.safetensors")
    shape = ("--tp", "1", "--llm-layers", "[3]", "--vit-layers", "[3]")
    command = ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *shape)
    assert message in Refusals(capsys)(3, *command, out=mm)
