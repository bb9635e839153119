"""`taskpack rehearse`, whole: the scripts of a small task, and checks that can fail."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rehearsal_runs import Rehearsal

pytestmark = [pytest.mark.slow, pytest.mark.torch]

EXPORT = "ckpt/mm_to_hf/Qwen2.5-VL-32B-Instruct"
BASE = "ckpt/hf_path/Qwen2.5-VL-32B-Instruct"
MM = "ckpt/mm_path/Qwen2.5-VL-32B-Instruct"
RANKS = ["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"]


def passed(rehearsal: Rehearsal) -> dict[str, bool]:
    return {check["name"]: check["passed"] for check in rehearsal.result["checks"]}


def test_a_lora_run_passes_every_check(lora: Rehearsal) -> None:
    assert lora.code == 0, lora.progress
    assert passed(lora) == dict.fromkeys(
        [
            "every tensor accounted for",
            "base round trip is bit-equal",
            "loss fell",
            "only adapted weights moved",
            "merged model equals base + adapter",
            "export loads and generates",
        ],
        True,
    )
    steps = [step["name"] for step in lora.result["steps"]]
    assert steps == ["build", "convert", "base round trip", "fine-tune", "merge", "export"]


def test_a_full_run_passes_every_check(full: Rehearsal) -> None:
    assert full.code == 0, full.progress
    assert passed(full) == dict.fromkeys(
        [
            "every tensor accounted for",
            "base round trip is bit-equal",
            "loss fell",
            "export equals what trained",
            "export loads and generates",
        ],
        True,
    )
    assert "merge" not in [step["name"] for step in full.result["steps"]]


def test_the_adapter_is_saved_as_mindspeed_mm_saves_it(lora: Rehearsal) -> None:
    import torch

    save = lora.checkout / "save_dir"
    last = int((save / "latest_checkpointed_iteration.txt").read_text())
    assert sorted(path.name for path in (save / f"iter_{last:07d}").iterdir()) == RANKS
    path = save / f"iter_{last:07d}" / "mp_rank_01_001" / "model_optim_rng.pt"
    state = torch.load(path, weights_only=False)
    assert state["iteration"] == last and state["checkpoint_version"] == 3.0
    assert state["args"].lora_r == 8 and state["args"].tensor_model_parallel_size == 2
    tensors = {name: value for name, value in state["model"].items() if value is not None}
    assert all("lora" in name and value.dtype == torch.bfloat16 for name, value in tensors.items())
    layer = "text_decoder.decoder.layers.1"
    shapes = {
        name.removeprefix(f"{layer}."): tuple(value.shape)
        for name, value in tensors.items()
        if name.startswith(layer)
    }
    # hidden 32, two query groups of (2 + 1 + 1) heads of 8; feed-forward 80, gate and up; TP 2
    assert shapes == {
        "self_attention.linear_qkv.lora_A.default.weight": (8, 32),
        "self_attention.linear_qkv.lora_B.default.weight": (32, 8),
        "self_attention.linear_proj.lora_A.default.weight": (8, 16),
        "self_attention.linear_proj.lora_B.default.weight": (32, 8),
        "mlp.linear_fc1.lora_A.default.weight": (8, 32),
        "mlp.linear_fc1.lora_B.default.weight": (80, 8),
        "mlp.linear_fc2.lora_A.default.weight": (8, 40),
        "mlp.linear_fc2.lora_B.default.weight": (32, 8),
    }
    empty = {name for name, value in state["model"].items() if value is None}
    assert f"{layer}.self_attention.linear_proj.lora_A.default._extra_state" in empty
    assert f"{layer}.self_attention.linear_qkv.lora_B.default._extra_state" in empty
    assert len(empty) == len(tensors) // 2


def test_frozen_vision_layers_have_no_adapter(lora: Rehearsal) -> None:
    from safetensors import safe_open

    with safe_open(lora.checkout / "trained" / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert names and not [name for name in names if "visual" in name]


def test_q_k_and_v_share_one_a(lora: Rehearsal) -> None:
    import torch
    from safetensors.torch import load_file

    tensors = load_file(lora.checkout / "trained" / "adapter_model.safetensors")
    stem = "base_model.model.model.language_model.layers.0"
    q, k, v = (tensors[f"{stem}.self_attn.{n}_proj.lora_A.weight"] for n in "qkv")
    assert torch.equal(q, k) and torch.equal(q, v)
    gate, up = (tensors[f"{stem}.mlp.{n}_proj.lora_A.weight"] for n in ("gate", "up"))
    assert torch.equal(gate, up) and not torch.equal(gate, q)


def test_a_full_checkpoint_holds_the_tensors_of_its_stage(full: Rehearsal) -> None:
    import torch

    save = full.checkout / "save_dir"
    last = int((save / "latest_checkpointed_iteration.txt").read_text())
    states = [
        torch.load(save / f"iter_{last:07d}" / rank / "model_optim_rng.pt", weights_only=False)
        for rank in ("mp_rank_00_000", "mp_rank_00_001")
    ]
    first, second = (set(state["model"]) for state in states)
    assert "text_decoder.embedding.word_embeddings.weight" in first - second
    assert "text_decoder.output_layer.weight" in second - first
    assert "text_decoder.output_layer._extra_state" in second
    assert not [name for name in second if name.startswith("image_encoder")]


def test_the_log_has_a_record_per_step(lora: Rehearsal) -> None:
    records = re.findall(r" \[\d{4}-[^]]+\] iteration +(\d+)/ +(\d+) \| consumed", lora.progress)
    steps = len(lora.result["losses"])
    assert [(int(a), int(b)) for a, b in records] == [(n + 1, steps) for n in range(steps)]
    assert "successfully saved checkpoint from iteration" in lora.progress


def test_the_page_needs_nothing_but_itself(lora: Rehearsal) -> None:
    page = lora.report.read_text(encoding="utf-8")
    assert "<polyline" in page and page.count("PASS") >= 12
    assert not re.findall(r"(?:src|href)=|https?://|<script|@import", page)
    assert "nothing about speed" in page.replace("\n", " ")


# --- the checks themselves: each must fail on the fault that it is there for


def changed_export(lora: Rehearsal, folder: Path, change: Any) -> Path:
    from safetensors.torch import load_file, save_file

    copy = folder / "export"
    shutil.copytree(lora.checkout / EXPORT, copy)
    for path in copy.glob("*.safetensors"):
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})
    return copy


def bump(name: str, amount: float) -> Any:
    def change(tensors: dict[str, Any]) -> None:
        if name in tensors:
            tensors[name].view(-1)[7] += amount

    return change


def test_one_wrong_weight_outside_the_adapter_is_found(lora: Rehearsal, tmp_path: Path) -> None:
    from taskpack.rehearse.weights_checks import adapted_weights, check_untouched

    export = changed_export(lora, tmp_path, bump("visual.blocks.0.norm1.weight", 0.5))
    targets = adapted_weights(lora.checkout / "trained")
    check = check_untouched(lora.checkout / BASE, export, targets=targets)
    assert not check.passed
    assert "visual.blocks.0.norm1.weight" in check.detail


def test_a_lost_tensor_is_found(lora: Rehearsal, tmp_path: Path) -> None:
    from taskpack.rehearse.weights_checks import check_accounted, check_round_trip

    def drop(tensors: dict[str, Any]) -> None:
        tensors.pop("model.layers.1.mlp.up_proj.weight", None)

    export = changed_export(lora, tmp_path, drop)
    base = lora.checkout / BASE
    check = check_accounted(lora.checkout / MM, base, export, rank_files=4)
    assert not check.passed and "model.layers.1.mlp.up_proj.weight" in check.detail
    assert not check_round_trip(base, export).passed


def test_a_lost_rank_file_is_found(lora: Rehearsal) -> None:
    from taskpack.rehearse.weights_checks import check_accounted

    base = lora.checkout / BASE
    round_trip = lora.checkout / "ckpt" / "round_trip"
    assert check_accounted(lora.checkout / MM, base, round_trip, rank_files=4).passed
    assert not check_accounted(lora.checkout / MM, base, round_trip, rank_files=8).passed


@pytest.fixture(scope="session")
def probe(lora: Rehearsal) -> Any:
    from taskpack.rehearse.model_checks import make_probe

    return make_probe(lora.checkout, lora.checkout / "tasks" / "tiny")


def test_an_unmerged_export_is_found(lora: Rehearsal, probe: Any) -> None:
    from taskpack.rehearse.model_checks import check_merge

    base, trained = lora.checkout / BASE, lora.checkout / "trained"
    assert check_merge(base, trained, lora.checkout / EXPORT, probe).passed
    assert not check_merge(base, trained, base, probe).passed


def test_gate_and_up_exchanged_in_one_layer_are_found(
    lora: Rehearsal, probe: Any, tmp_path: Path
) -> None:
    from taskpack.rehearse.model_checks import check_merge

    gate, up = (f"model.layers.2.mlp.{name}_proj.weight" for name in ("gate", "up"))

    def exchange(tensors: dict[str, Any]) -> None:
        if gate in tensors:
            tensors[gate], tensors[up] = tensors[up], tensors[gate]

    export = changed_export(lora, tmp_path, exchange)
    check = check_merge(lora.checkout / BASE, lora.checkout / "trained", export, probe)
    assert not check.passed


def test_an_export_that_lacks_a_tensor_does_not_load(
    lora: Rehearsal, probe: Any, tmp_path: Path
) -> None:
    from taskpack.rehearse.model_checks import check_loads

    def drop(tensors: dict[str, Any]) -> None:
        tensors.pop("model.norm.weight", None)

    check = check_loads(changed_export(lora, tmp_path, drop), probe)
    assert not check.passed
    assert "missing" in check.detail


def test_weights_that_did_not_train_are_found(full: Rehearsal) -> None:
    from taskpack.rehearse.weights_checks import check_full_export

    base, trained = full.checkout / BASE, full.checkout / "trained"
    frozen = ("visual.",)
    assert check_full_export(base, trained, full.checkout / EXPORT, frozen=frozen).passed
    assert not check_full_export(base, base, base, frozen=frozen).passed
    assert not check_full_export(base, trained, base, frozen=frozen).passed
    assert not check_full_export(base, trained, trained, frozen=("model.layers.",)).passed


def test_a_loss_that_did_not_fall_is_found(lora: Rehearsal, probe: Any) -> None:
    from taskpack.rehearse.model_checks import check_loss

    base, export = lora.checkout / BASE, lora.checkout / EXPORT
    losses = lora.result["losses"]
    assert check_loss(base, export, probe, losses=losses, steps=len(losses)).passed
    assert not check_loss(base, base, probe, losses=losses, steps=len(losses)).passed
    assert not check_loss(base, export, probe, losses=losses[1:], steps=len(losses)).passed
