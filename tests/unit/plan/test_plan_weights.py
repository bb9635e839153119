"""Folders of weights held against the profile, from headers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from folders import make_hf, make_small_task
from planning import Load, PlanJson, settings
from taskpack.cli import main


def _found(printed: dict[str, Any], name: str) -> list[dict[str, str]]:
    return [check for check in printed["checks"] if check["name"] == name]


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of the small task, beside its tasks/ folder."""
    monkeypatch.chdir(tmp_path)
    return make_hf(tmp_path / "hf", make_small_task(tmp_path))


@pytest.fixture
def mm(hf: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The same, converted for the small task."""
    target = hf.parent / "mm"
    words = ["--hf", str(hf), "--mm", str(target), "--task", "tasks/small"]
    assert main(["convert", "hf-to-mm", *words]) == 0
    capsys.readouterr()
    return target


def test_weights_of_the_model_pass(tmp_path: Path, load: Load, plan_json: PlanJson) -> None:
    hf = make_hf(tmp_path / "hf", load("qwen2.5vl-7b"))
    code, printed = plan_json("qwen2.5vl-7b", "--hf", str(hf))
    assert code == 0
    assert [check["what"] for check in _found(printed, "HF folder")] == [
        "config.json has the profile's architecture",
        "729 tensors, each of the shape the profile needs",
    ]
    commands = [step["command"] for step in printed["next"]]
    assert f"HF_PATH={hf} bash tasks/qwen2.5vl-7b/convert_hf_to_mm.sh" in commands
    assert not any("download" in command for command in commands)


def test_weights_of_another_size_fail_with_both_numbers(
    tmp_path: Path, load: Load, plan_json: PlanJson
) -> None:
    hf = make_hf(tmp_path / "hf", load("qwen2.5vl-3b"))
    code, printed = plan_json("qwen2.5vl-7b", "--hf", str(hf))
    (first, *_) = _found(printed, "HF folder")
    assert (code, first["status"]) == (1, "fail")
    assert "text.layers 36 (profile: 28), text.hidden_size 2048 (profile: 3584)" in first["what"]


def test_weights_of_another_family_fail_with_both_names(
    tmp_path: Path, load: Load, plan_json: PlanJson
) -> None:
    hf = make_hf(tmp_path / "hf", load("qwen2.5vl-7b"))
    code, printed = plan_json("qwen2vl-7b", "--hf", str(hf))
    (first, *_) = _found(printed, "HF folder")
    assert (code, first["status"]) == (1, "fail")
    assert "model_type qwen2_5_vl (profile: qwen2_vl)" in first["what"]


def test_a_missing_tensor_is_named(hf: Path, plan_json: PlanJson) -> None:
    path = hf / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].replace(b'"model.norm.weight"', b'"model.morn.weight"')
    path.write_bytes(data[:8] + header + data[8 + size :])
    code, printed = plan_json("small", "--hf", str(hf))
    failures = [check for check in _found(printed, "HF folder") if check["status"] == "fail"]
    assert code == 1
    assert "model.norm.weight" in failures[0]["what"]


def test_a_folder_without_its_tokenizer_fails(hf: Path, plan_json: PlanJson) -> None:
    (hf / "tokenizer.json").unlink()
    (hf / "preprocessor_config.json").unlink()
    code, printed = plan_json("small", "--hf", str(hf))
    failures = [
        check["what"] for check in _found(printed, "HF folder") if check["status"] == "fail"
    ]
    assert (code, failures) == (
        1,
        ["the folder lacks preprocessor_config.json, vocab.json and merges.txt"],
    )


def test_a_folder_of_the_configuration_alone_leaves_the_weights_open(
    hf: Path, plan_json: PlanJson
) -> None:
    (hf / "model.safetensors").unlink()
    code, printed = plan_json("small", "--hf", str(hf))
    assert code == 0
    assert [check["status"] for check in _found(printed, "HF folder")] == ["pass", "open"]


def test_a_folder_that_is_not_there_is_a_failed_check(
    hf: Path, tmp_path: Path, plan_json: PlanJson
) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert hf.is_dir()
    code, printed = plan_json("small", "--hf", nowhere, "--mm", nowhere)
    assert code == 1
    assert [check["status"] for check in _found(printed, "HF folder")] == ["fail"]
    assert [check["status"] for check in _found(printed, "MM folder")] == ["fail"]


def test_converted_weights_of_the_layout_pass(mm: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("small", "--mm", str(mm))
    (found,) = _found(printed, "MM folder")
    assert (code, found["status"]) == (0, "pass")
    assert found["what"].startswith("4 rank files with ")
    assert found["what"].endswith("cut for TP 2 x PP 2 as the profile is")


def test_converted_weights_of_another_layout_fail_with_both_lists(
    mm: Path, plan_json: PlanJson
) -> None:
    code, printed = plan_json("small", "--mm", str(mm), *settings("parallel.text_layers=[2, 2]"))
    (found,) = _found(printed, "MM folder")
    assert (code, found["status"]) == (1, "fail")
    assert "text_layers [1, 3] (profile: [2, 2])" in found["what"]


def test_a_checkpoint_without_a_record_is_judged_by_its_tensors(
    mm: Path, plan_json: PlanJson
) -> None:
    (mm / "taskpack_layout.json").unlink()
    assert plan_json("small", "--mm", str(mm))[0] == 0
    code, printed = plan_json("small", "--mm", str(mm), *settings("parallel.tp=1"))
    (found,) = _found(printed, "MM folder")
    assert (code, found["status"]) == (1, "fail")
    assert found["what"] == "the checkpoint is cut for TP 2 x PP 2, not for TP 1 x PP 2"


def test_a_record_of_another_model_fails_with_both_numbers(mm: Path, plan_json: PlanJson) -> None:
    path = mm / "taskpack_layout.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["dims"]["F"] = 97
    path.write_text(json.dumps(record), encoding="utf-8")
    code, printed = plan_json("small", "--mm", str(mm))
    assert code == 1
    assert "dimension F 97 (profile: 96)" in _found(printed, "MM folder")[0]["what"]


def test_a_checkpoint_without_a_rank_fails(mm: Path, plan_json: PlanJson) -> None:
    (mm / "release" / "mp_rank_01_001" / "model_optim_rng.pt").unlink()
    code, printed = plan_json("small", "--mm", str(mm))
    assert (code, _found(printed, "MM folder")[0]["status"]) == (1, "fail")
