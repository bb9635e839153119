"""Absolute places of adapter rows in rank files, written down by hand from the model's rules.

A round trip cannot see a wrong order that is undone the same way. The model is that of
test_placement: 8 query heads in 4 groups of width 8, ffn 96; vision 4 heads of width 8, ffn 40.
"""

import json
from pathlib import Path

import golden_inputs
import pytest
import torch
from addressed import layout, rank
from safetensors.torch import save_file
from taskpack.weights import lora_to_peft, peft_to_mm, read_hf_config

pytestmark = pytest.mark.torch

R, ALPHA = 3, 7
MODULES = [module for module, *_ in golden_inputs.linears()]
TEXT = "text_decoder.decoder.layers"
VISION = "image_encoder.encoder.blocks.layers"
Runs = list[tuple[str, int, int]]


def leader(module: str) -> str:
    """Name the module whose lora_A a fused module takes."""
    for which, first in (("k_proj", "q_proj"), ("v_proj", "q_proj"), ("up_proj", "gate_proj")):
        module = module.replace(which, first)
    return module


def number(module: str, place: int) -> int:
    return 1000 * MODULES.index(module) + place


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_inputs.make_hf(tmp_path_factory.mktemp("in") / "hf")


@pytest.fixture(scope="module")
def peft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter whose B says module and row, and whose A says module and column."""
    folder = tmp_path_factory.mktemp("peft")
    tensors = {}
    for module, rows, columns, _ in golden_inputs.linears():
        first = number(leader(module), 0)
        a = torch.arange(first, first + columns).repeat(R, 1)
        b = torch.arange(number(module, 0), number(module, rows))[:, None].repeat(1, R)
        tensors[f"base_model.model.{module}.lora_A.weight"] = a.float()
        tensors[f"base_model.model.{module}.lora_B.weight"] = b.float()
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    (folder / "adapter_config.json").write_text(json.dumps({"r": R, "lora_alpha": ALPHA}))
    return folder


def numbers(runs: Runs) -> list[int]:
    return [number(module, place) for module, *span in runs for place in range(*span)]


def b_rows(state: dict[str, torch.Tensor], module: str) -> list[int]:
    value = state[f"{module}.lora_B.default.weight"]
    assert value.shape[1] == R
    return value[:, 0].int().tolist()


def a_columns(state: dict[str, torch.Tensor], module: str) -> list[int]:
    value = state[f"{module}.lora_A.default.weight"]
    assert value.shape[0] == R
    return value[0].int().tolist()


def test_a_fused_qkv_has_one_a_and_b_by_query_group(hf: Path, peft: Path, tmp_path: Path) -> None:
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=layout(2, [1, 3], [4, 0]))
    state = rank(tmp_path / "mm", "mp_rank_01_001")
    q, k, v = (f"model.layers.2.self_attn.{which}_proj" for which in "qkv")
    # local layer 1 of stage 1 is layer 2; rank 1 owns groups 2 and 3
    module = f"{TEXT}.1.self_attention.linear_qkv"
    assert b_rows(state, module) == numbers(
        [
            *((q, 32, 48), (k, 16, 24), (v, 16, 24)),
            *((q, 48, 64), (k, 24, 32), (v, 24, 32)),
        ]
    )
    assert a_columns(state, module) == numbers([(q, 0, 64)])


def test_gate_and_up_are_halves_of_every_rank(hf: Path, peft: Path, tmp_path: Path) -> None:
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=layout(4, [4], [4]))
    state = rank(tmp_path / "mm", "mp_rank_02")
    gate, up = (f"model.layers.3.mlp.{which}_proj" for which in ("gate", "up"))
    module = f"{TEXT}.3.mlp.linear_fc1"
    assert b_rows(state, module) == numbers([(gate, 48, 72), (up, 48, 72)])
    assert a_columns(state, module) == numbers([(gate, 0, 64)])
    gate, up = (f"visual.blocks.1.mlp.{which}_proj" for which in ("gate", "up"))
    assert b_rows(state, f"{VISION}.1.mlp.linear_fc1") == numbers([(gate, 20, 30), (up, 20, 30)])


def test_row_parallel_modules_cut_a_and_repeat_b(hf: Path, peft: Path, tmp_path: Path) -> None:
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=layout(2, [4], [4]))
    for number_of_rank in (0, 1):
        state = rank(tmp_path / "mm", f"mp_rank_{number_of_rank:02d}")
        down, half = "model.layers.1.mlp.down_proj", 48 * number_of_rank
        assert a_columns(state, f"{TEXT}.1.mlp.linear_fc2") == numbers([(down, half, half + 48)])
        assert b_rows(state, f"{TEXT}.1.mlp.linear_fc2") == numbers([(down, 0, 64)])
        # the stock converter keeps rank 0's half of the projector's lora_A only
        projector, half = "visual.merger.mlp.2", 64 * number_of_rank
        module = "image_encoder.projector.encoder.linear_fc2"
        assert a_columns(state, module) == numbers([(projector, half, half + 64)])
        assert b_rows(state, module) == numbers([(projector, 0, 64)])


@pytest.mark.parametrize("canonical", [False, True])
def test_vision_qkv_is_by_head_or_a_share_of_each_third(
    canonical: bool, hf: Path, peft: Path, tmp_path: Path
) -> None:
    cut = layout(2, [4], [4], canonical=canonical)
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=cut)
    qkv = "visual.blocks.0.attn.qkv"
    by_head = [(qkv, t + 8 * h, t + 8 * h + 8) for h in (2, 3) for t in (0, 32, 64)]
    thirds = [(qkv, 16, 32), (qkv, 48, 64), (qkv, 80, 96)]
    found = b_rows(rank(tmp_path / "mm", "mp_rank_01"), f"{VISION}.0.self_attention.linear_qkv")
    assert found == numbers(thirds if canonical else by_head)


def test_canonical_modules_are_cut_plainly(hf: Path, peft: Path, tmp_path: Path) -> None:
    cut = layout(2, [4], [4], canonical=True)
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=cut)
    state = rank(tmp_path / "mm", "mp_rank_01")
    for module, place, start, stop in (
        ("model.layers.0.self_attn.k_proj", f"{TEXT}.0.self_attention.k_proj", 16, 32),
        ("model.layers.0.mlp.up_proj", f"{TEXT}.0.mlp.up_proj", 48, 96),
    ):
        assert b_rows(state, place) == numbers([(module, start, stop)])


def test_what_peft_is_given_is_a_for_each_module_and_whole_b(
    hf: Path, peft: Path, tmp_path: Path
) -> None:
    peft_to_mm(peft, read_hf_config(hf), tmp_path / "mm", layout=layout(4, [1, 3], [4, 0]))
    lora_to_peft(tmp_path / "mm", tmp_path / "old", old_names=True)
    lora_to_peft(tmp_path / "mm", tmp_path / "new")
    from safetensors.torch import load_file

    wanted = load_file(peft / "adapter_model.safetensors")
    old = load_file(tmp_path / "old" / "adapter_model.safetensors")
    assert old.keys() == wanted.keys()
    assert all(torch.equal(old[name], value) for name, value in wanted.items())
    new = load_file(tmp_path / "new" / "adapter_model.safetensors")
    renamed = {
        name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")
        for name in new
    }
    assert renamed == wanted.keys() != new.keys()
