"""What an adapter_config.json may say, and what is refused by its name."""

import json
from pathlib import Path
from typing import Any

import builders
import pytest
import torch
from builders import Refusals, run
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.torch
Capture = pytest.CaptureFixture[str]
R, ALPHA = 3, 7.0
WEIGHTS = "adapter_model.safetensors"
MODULE = "model.language_model.layers.{}.self_attn.{}_proj"


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.make_hf(tmp_path_factory.mktemp("in") / "hf", dtype="fp32")


def make_peft(folder: Path, **settings: Any) -> Path:
    """An adapter on q and k of two layers, with the names that transformers has from 4.52 on."""
    folder.mkdir()
    tensors = {}
    for layer in (0, 2):
        for which, rows in (("q", 32), ("k", 16)):
            module = f"base_model.model.{MODULE.format(layer, which)}"
            tensors[f"{module}.lora_A.weight"] = torch.ones(R, 32)
            tensors[f"{module}.lora_B.weight"] = torch.ones(rows, R)
    save_file(tensors, str(folder / WEIGHTS))
    config = {"r": R, "lora_alpha": ALPHA, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def export(hf: Path, peft: Path, out: Path, *flags: str) -> tuple[object, ...]:
    return "export", "--base", hf, "--hf-ref", hf, "--adapter", peft, "--hf", out, *flags


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"init_lora_weights": "pissa_niter_16"}, "init_lora_weights"),
        ({"init_lora_weights": "OLoRA"}, "init_lora_weights"),
        ({"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4}}, "init_lora_weights"),
        ({"kasa_config": {"gamma": 1}}, "kasa_config"),
        ({"peft_type": "ADALORA"}, "peft_type"),
        ({"bias": "all"}, "bias"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"of_a_later_peft": {"on": True}}, "of_a_later_peft"),
    ],
)
def test_what_would_be_merged_wrongly_is_refused_by_name(
    settings: dict[str, Any], named: str, hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    peft, out = make_peft(tmp_path / "peft", **settings), tmp_path / "out"
    said = Refusals(capsys)(3, *export(hf, peft, out), out=out)
    assert f"the adapter uses {named}" in said and "treating it as plain LoRA" in said


@pytest.mark.parametrize(
    "settings",
    [
        {"init_lora_weights": True},
        {"init_lora_weights": "gaussian", "lora_dropout": 0.1},
        {"of_a_later_peft": None, "another": False, "third": {}},
        {"megatron_core": "megatron.core", "qalora_group_size": 16, "peft_type": "LORA"},
    ],
)
def test_settings_that_do_not_change_the_math_pass(
    settings: dict[str, Any], hf: Path, tmp_path: Path
) -> None:
    peft = make_peft(tmp_path / "peft", **settings)
    assert run(*export(hf, peft, tmp_path / "out")) == 0


def test_a_pattern_is_about_names_as_the_adapter_spells_them(hf: Path, tmp_path: Path) -> None:
    # the base spells its tensors as before 4.52, the adapter its modules as after
    patterns = {MODULE.format(0, "q"): 5, r"layers\.2\..*": 11}
    peft = make_peft(tmp_path / "peft", alpha_pattern=patterns)
    assert run(*export(hf, peft, tmp_path / "out")) == 0
    before, after = ({} for _ in range(2))
    for folder, found in ((hf, before), (tmp_path / "out", after)):
        for path in folder.glob("*.safetensors"):
            found |= load_file(path)
    # each element of B @ A is R, so the alpha of its module is what was added
    for layer, which, alpha in ((0, "q", 5), (0, "k", ALPHA), (2, "q", 11), (2, "k", 11)):
        name = f"model.layers.{layer}.self_attn.{which}_proj.weight"
        assert torch.equal(after[name], (before[name].double() + alpha).float())


@pytest.mark.parametrize(
    ("settings", "flags", "message"),
    [
        ({}, ("--alpha", "8"), "alpha is 7 in adapter_config.json but 8 in --alpha and --r"),
        ({"r": 4}, (), "r is 4 in adapter_config.json but 3 in the shape of lora_A"),
        (
            {"alpha_pattern": {"q_proj": 2}},
            ("--alpha", "8"),
            "alpha is 7 in adapter_config.json but 8 in --alpha and --r",
        ),
    ],
)
def test_two_sources_that_disagree_are_both_shown(
    settings: dict[str, Any],
    flags: tuple[str, ...],
    message: str,
    hf: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    peft, out = make_peft(tmp_path / "peft", **settings), tmp_path / "out"
    assert message in Refusals(capsys)(2, *export(hf, peft, out, *flags), out=out)


def test_a_module_that_the_model_has_not_is_told_with_the_nearest(
    hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    peft, out = make_peft(tmp_path / "peft"), tmp_path / "out"
    tensors = {
        name.replace("q_proj", "qq_proj"): value
        for name, value in load_file(peft / WEIGHTS).items()
    }
    save_file(tensors, str(peft / WEIGHTS))
    said = Refusals(capsys)(3, *export(hf, peft, out), out=out)
    assert "no base weight belongs to: base_model.model.model.language_model.layers.*" in said
    assert "self_attn.q_proj'" in said


def test_an_adapter_without_its_config_needs_alpha(
    hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    peft, out = make_peft(tmp_path / "peft"), tmp_path / "out"
    (peft / "adapter_config.json").unlink()
    assert "nothing tells the alpha" in Refusals(capsys)(2, *export(hf, peft, out), out=out)
    assert run(*export(hf, peft, out, "--alpha", "7", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["scale"] == pytest.approx(7 / 3)


def test_a_pickled_adapter_is_refused(hf: Path, tmp_path: Path, capsys: Capture) -> None:
    peft, out = make_peft(tmp_path / "peft"), tmp_path / "out"
    (peft / WEIGHTS).rename(peft / "adapter_model.bin")
    assert "the adapter is a pickle" in Refusals(capsys)(3, *export(hf, peft, out), out=out)


def test_a_rank_is_expanded_only_with_a_known_alpha(
    hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    peft, out = make_peft(tmp_path / "peft"), tmp_path / "out"
    cut = ("--hf-ref", hf, *builders.LAYOUT_FLAGS, "--expand-rank")
    command = ("lora", "from-peft", "--peft", peft, "--out", out, *cut)
    wrong = {"r": R + 1, "lora_alpha": ALPHA}
    (peft / "adapter_config.json").write_text(json.dumps(wrong))
    assert "r is 4 in adapter_config.json but 3" in Refusals(capsys)(2, *command, out=out)
    tensors = load_file(peft / WEIGHTS)
    k = f"base_model.model.{MODULE.format(0, 'k')}"
    several = {f"{k}.lora_A.weight": torch.ones(2, 32), f"{k}.lora_B.weight": torch.ones(16, 2)}
    save_file(tensors | several, str(peft / WEIGHTS))
    assert "have several ranks" in Refusals(capsys)(3, *command, out=out)
    save_file(tensors, str(peft / WEIGHTS))
    (peft / "adapter_config.json").unlink()
    assert "has no adapter_config.json" in Refusals(capsys)(3, *command, out=out)
