"""The stock converter's commands, run as its guides write them."""

import json
from argparse import Namespace
from pathlib import Path

import golden_inputs
import pytest
import torch
from taskpack.cli import main
from test_goldens import EXPECTED, _tensors

pytestmark = pytest.mark.torch

TP2_PP2 = {"llm_pp_layers": "[1,3]", "vit_pp_layers": "[4,0]", "tp_size": "2"}
TP1 = {"llm_pp_layers": "[4]", "vit_pp_layers": "[4]", "tp_size": "1"}
CANONICAL = {
    "common_model_config.enable_canonical_hf_struct": "true",
    "common_model_config.model_prefix": "base_model.model.",
    "common_model_config.new_transformers_weight_key": "false",
}


def convert(action: str, keys: dict[str, object], *more: str) -> int:
    words = [word for key, value in keys.items() for word in (f"--cfg.{key}", str(value))]
    return main(["mm-convert", "Qwen2_5_VLConverter", action, *words, *more])


def parallel(sizes: dict[str, str], prefix: str = "parallel_config") -> dict[str, object]:
    return {f"{prefix}.{key}": value for key, value in sizes.items()}


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_inputs.make_hf(tmp_path_factory.mktemp("in") / "hf")


@pytest.fixture(scope="module")
def mm(hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("out") / "mm"
    keys = {"mm_dir": made, "hf_config.hf_dir": hf, **parallel(TP2_PP2)}
    assert convert("hf_to_mm", keys) == 0
    # as the stock converter leaves it
    (made / "taskpack_layout.json").unlink()
    return made


def test_hf_to_mm_and_back(hf: Path, mm: Path, tmp_path: Path) -> None:
    assert golden_inputs.digests(mm) == EXPECTED["h_untied_tp2pp2"]
    back = {"save_hf_dir": tmp_path / "hf", "mm_dir": mm, "hf_config.hf_dir": hf}
    assert convert("mm_to_hf", back | parallel(TP2_PP2)) == 0
    found = golden_inputs.digests(tmp_path / "hf")
    assert _tensors(found) == _tensors(EXPECTED["r_untied_tp2pp2"])


def test_resplit_needs_no_config(mm: Path, tmp_path: Path) -> None:
    keys = {
        "source_dir": mm,
        "target_dir": tmp_path / "tp1",
        **parallel(TP2_PP2, "source_parallel_config"),
        **parallel(TP1, "target_parallel_config"),
    }
    assert convert("resplit", keys) == 0
    assert golden_inputs.digests(tmp_path / "tp1") == EXPECTED["s_tp2pp2_tp1pp1"]


def test_adapters_go_both_ways_and_keep_their_alpha(tmp_path: Path) -> None:
    peft = golden_inputs.make_peft(tmp_path / "peft")
    there = {"mm_dir": tmp_path / "mm", "hf_config.hf_dir": peft, **parallel(TP1), **CANONICAL}
    assert convert("lora_hf_to_mm", there) == 0
    assert golden_inputs.digests(tmp_path / "mm") == EXPECTED["l_old_tp1pp1"]
    back = {"save_hf_dir": tmp_path / "back", "mm_dir": tmp_path / "mm", **parallel(TP1)}
    assert convert("lora_mm_to_hf", back | CANONICAL) == 0
    assert golden_inputs.digests(tmp_path / "back") == EXPECTED["lr_old_tp1pp1"]
    config = json.loads((tmp_path / "back" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (8, 16)


def test_the_stock_merge_script(mm: Path, tmp_path: Path) -> None:
    adapter = golden_inputs.make_fused_adapter(tmp_path / "adapter")
    words = f"--base_save_dir {mm} --lora_save_dir {adapter} --merge_save_dir {tmp_path / 'out'}"
    targets = ["--lora_target_modules", "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    sizes = ["--lora_alpha", "16", "--lora_r", "8", "--pp_size", "2", "--tp_size", "2"]
    assert main(["mm-convert", "merge_base_lora_weight", *words.split(), *targets, *sizes]) == 0
    assert golden_inputs.digests(tmp_path / "out") == EXPECTED["m_tp2pp2"]


def test_an_adapter_without_alpha_is_converted_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    peft = golden_inputs.make_peft(tmp_path / "peft")
    (peft / "adapter_config.json").unlink()
    there = {"mm_dir": tmp_path / "mm", "hf_config.hf_dir": peft, **parallel(TP1), **CANONICAL}
    assert convert("lora_hf_to_mm", there) == 0
    back = {"save_hf_dir": tmp_path / "back", "mm_dir": tmp_path / "mm", **parallel(TP1)}
    with caplog.at_level("INFO"):
        assert convert("lora_mm_to_hf", back | CANONICAL) == 0
    assert not (tmp_path / "back" / "adapter_config.json").exists()
    assert f"no adapter_config.json, since nothing in {tmp_path / 'mm'} tells alpha" in caplog.text


def test_the_merge_takes_alpha_from_the_adapter_and_the_device_it_is_told(
    mm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = golden_inputs.make_fused_adapter(tmp_path / "adapter")
    for path in adapter.rglob("*.pt"):
        content = torch.load(path, weights_only=False)
        torch.save(content | {"args": Namespace(lora_alpha=16, lora_r=8)}, path)
    words = f"--base_save_dir {mm} --lora_save_dir {adapter} --merge_save_dir {tmp_path / 'out'}"
    more = ["--lora_target_modules", "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    more += ["--pp_size", "2", "--tp_size", "2", "--device", "npu"]
    with caplog.at_level("INFO"):
        assert main(["mm-convert", "merge_base_lora_weight", *words.split(), *more]) == 0
    assert golden_inputs.digests(tmp_path / "out") == EXPECTED["m_tp2pp2"]
    assert "--device npu: merged on the CPU" in caplog.text


def test_a_config_file_holds_the_same_keys(hf: Path, tmp_path: Path) -> None:
    config = tmp_path / "hf_to_mm.yaml"
    config.write_text(
        f"cfg:\n  mm_dir: {tmp_path / 'mm'}\n  hf_config:\n    hf_dir: {hf}\n"
        "  parallel_config:\n    llm_pp_layers: [[1,1],[1,1]]\n"
        "    vit_pp_layers: [[4,0],[0,0]]\n    tp_size: 1\n"
    )
    assert main(["mm-convert", "Qwen2_5_VLConverter", "hf_to_mm", "--config", str(config)]) == 0
    assert golden_inputs.digests(tmp_path / "mm") == EXPECTED["h_untied_vpp2"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["Qwen2_5_VLConverter", "hf_to_mm_dcp"], "the action 'hf_to_mm_dcp' is not supported"),
        (["InternVLConverter", "hf_to_mm"], "'InternVLConverter' is not supported"),
        (["Qwen2_5_VLConverter", "hf_to_mm", "--cfg.mmdir", "x"], "hf_to_mm has no key 'mmdir'"),
        (
            ["Qwen2_5_VLConverter", "hf_to_mm", "--cfg.parallel_config.ep_size", "2"],
            "parallel_config.ep_size = 2 is not supported",
        ),
        (["Qwen2_5_VLConverter", "hf_to_mm", "--cfg.mm_dir"], "--cfg.mm_dir has no value"),
        (["Qwen2_5_VLConverter", "resplit"], "None is no path"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mm-convert", *words]) == 2
    assert f"error: {what}\n  where: mm-convert" in capsys.readouterr().err


def test_each_converter_takes_only_its_own_family(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--cfg.mm_dir {tmp_path / 'mm'} --cfg.hf_config.hf_dir {hf}".split()
    assert main(["mm-convert", "Qwen2VLConverter", "hf_to_mm", *words]) == 2
    assert "fix:   use Qwen2_5_VLConverter" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_key_value_heads", 999),
        ("tie_word_embeddings", "true"),
        ("llm_num_layers", 7),
        ("vit_num_layers", 1),
    ],
)
def test_a_size_that_contradicts_the_model_is_refused(
    key: str, value: object, hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {
        "mm_dir": tmp_path / "mm",
        "hf_config.hf_dir": hf,
        f"common_model_config.{key}": value,
        **parallel(TP1),
    }
    assert convert("hf_to_mm", keys) == 2
    assert f"{key} is" in capsys.readouterr().err and not (tmp_path / "mm").exists()


def test_an_adapter_is_not_cut_to_its_vision_tower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peft = golden_inputs.make_peft(tmp_path / "peft")
    keys = {"mm_dir": tmp_path / "mm", "hf_config.hf_dir": peft, **parallel(TP1), **CANONICAL}
    assert convert("lora_hf_to_mm", keys | {"save_vit_only": "true"}) == 2
    assert "an adapter is converted whole" in capsys.readouterr().err
