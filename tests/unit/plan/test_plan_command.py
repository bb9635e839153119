"""`taskpack plan` as its user meets it: the list of checks, the pipeline, exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from planning import PlanJson, settings
from taskpack.cli import main


def _statuses(printed: dict[str, object], name: str) -> list[str]:
    checks = printed["checks"]
    assert isinstance(checks, list)
    return [check["status"] for check in checks if check["name"] == name]


@pytest.mark.parametrize(
    "model",
    [
        *(f"qwen2.5vl-{size}" for size in ("3b", "7b", "32b", "72b")),
        *(f"qwen2vl-{size}" for size in ("2b", "7b", "72b")),
    ],
)
def test_every_task_passes_its_own_plan(plan_json: PlanJson, model: str) -> None:
    code, printed = plan_json(model)
    assert (code, printed["passed"]) == (0, True)


def test_the_plan_shows_stages_batch_and_modules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen2.5vl-32b", "--nodes", "4"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert "one copy   TP 2 x PP 8 x CP 1 = 16 NPUs" in lines
    assert "cluster    4 x 8 NPUs = 32, DP 2; whole copies need a multiple of 2 nodes" in lines
    step = "step       micro 1 x accumulation 96 x DP 2 = 192 samples, at most 196,608 tokens"
    assert step in lines
    assert "all               33,452,718,336  59,244,544  0.177% trains" in lines
    assert "patches > vision 0-31 > projector > embedding > text 0-3" in text
    assert "text 58-63 > head" in text


def test_values_that_the_profile_lacks_are_written_into_the_next_commands(
    plan_json: PlanJson,
) -> None:
    changed = plan_json("qwen2.5vl-32b", "--nodes", "4")[1]["next"][0]["command"]
    assert changed == "taskpack render qwen2.5vl-32b --set platform.nodes=4"
    same = plan_json("qwen2.5vl-32b", "--nodes", "2")[1]["next"][0]["command"]
    assert same == "bash tasks/qwen2.5vl-32b/download_weights.sh"


def test_the_commands_depend_on_what_trains(plan_json: PlanJson) -> None:
    adapter = [step["command"] for step in plan_json("qwen2.5vl-32b")[1]["next"]]
    full = [step["command"] for step in plan_json("qwen2.5vl-7b")[1]["next"]]
    merge = "bash tasks/{}/merge_lora.sh"
    assert merge.format("qwen2.5vl-32b") in adapter
    assert merge.format("qwen2.5vl-7b") not in full
    assert "HOSTFILE=hosts bash tasks/qwen2.5vl-32b/finetune_qwen2_5_vl.sh" in adapter
    assert "bash tasks/qwen2.5vl-7b/finetune_qwen2_5_vl.sh" in full


def test_stages_that_train_nothing_are_named(plan_json: PlanJson) -> None:
    layers = "parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]"
    code, printed = plan_json("qwen2.5vl-32b", *settings(layers))
    assert code == 0
    notes = [check for check in printed["checks"] if check["name"] == "frozen stage"]
    assert notes[0]["what"] == "stage 0 trains nothing: --enable-dummy-optimizer is passed"
    assert printed["stages"][0]["trainable"] == 0


def test_virtual_stages_are_numbered_both_ways(plan_json: PlanJson) -> None:
    code, printed = plan_json(
        "qwen2.5vl-32b",
        *settings(
            "tuning.mode=full",
            "parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]",
            "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
        ),
        "--nodes",
        "4",
    )
    assert code == 0
    assert len(printed["stages"]) == 8
    assert len(printed["memory"]) == 4
    place = {key: printed["stages"][4][key] for key in ("stage", "virtual_stage", "text_layers")}
    assert place == {"stage": 0, "virtual_stage": 1, "text_layers": 9}


def test_a_card_that_cannot_hold_the_run_fails_with_the_largest_part(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--hbm", "32")
    (memory,) = [check for check in printed["checks"] if check["name"] == "memory"]
    assert (code, printed["passed"], memory["status"]) == (1, False, "fail")
    assert memory["why"] == "the largest part is gradients, 15.9 GiB"
    assert "--suggest" in memory["fix"]


def test_a_card_that_just_holds_it_is_a_note(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--hbm", "45")
    assert (code, _statuses(printed, "memory")) == (0, ["note"])
    assert _statuses(plan_json("qwen2.5vl-7b", "--hbm", "49")[1], "memory") == ["pass"]


def test_a_picture_longer_than_the_sequence_fails(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", *settings("data.image_max_pixels=802816"))
    (found,) = [check for check in printed["checks"] if check["name"] == "sequence"]
    assert (code, found["status"]) == (1, "fail")
    assert "at most 802032 for data.image_max_pixels" in found["fix"]
    edge = plan_json("qwen2.5vl-7b", *settings("data.image_max_pixels=802032"))
    assert (edge[0], _statuses(edge[1], "sequence")) == (0, ["pass"])


def test_activations_are_shown_with_and_without_recompute(
    plan_json: PlanJson, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = plan_json("qwen2.5vl-72b")[1]
    again = plan_json("qwen2.5vl-72b", *settings("train.recompute=full"))[1]
    assert kept["activations"] == again["activations"]
    assert kept["activations"]["none"] == [stage["activations"] for stage in kept["memory"]]
    assert kept["activations"]["full"] == [stage["activations"] for stage in again["memory"]]
    assert main(["plan", "qwen2.5vl-72b"]) == 0
    line = "activations of the fullest stage: 12.8 GiB, 1.4 with recompute full"
    assert line in capsys.readouterr().out


def test_npus_are_whole_nodes(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-32b", "--npus", "20")
    assert code == 2
    assert printed["errors"][0]["fix"].startswith("use 16 or 24")
    assert plan_json("qwen2.5vl-32b", "--npus", "16")[1]["nodes"] == 2
    assert plan_json("qwen2.5vl-7b", "--npus", "2")[1]["npus_per_node"] == 2


def test_a_timeout_shorter_than_a_slow_save_is_a_note(plan_json: PlanJson) -> None:
    short = settings("platform.timeout_minutes=5")
    assert _statuses(plan_json("qwen2.5vl-72b", *short)[1], "saving") == ["note"]
    assert _statuses(plan_json("qwen2.5vl-72b")[1], "saving") == []


def test_an_unusual_scale_of_the_adapter_is_a_note(plan_json: PlanJson) -> None:
    wide = settings("tuning.lora.alpha=64")
    assert _statuses(plan_json("qwen2.5vl-32b", *wide)[1], "adapter") == ["note"]
    assert _statuses(plan_json("qwen2.5vl-32b")[1], "adapter") == []


def test_what_a_resumed_run_forgets_is_a_note(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", *settings("resume.iteration=5", "resume.rng=true"))
    (note,) = [check for check in printed["checks"] if check["name"] == "resume"]
    assert (code, note["status"]) == (0, "note")
    assert note["what"] == "resumes from 5 without optimizer"
    whole = settings("resume.iteration=5", "resume.rng=true", "resume.optimizer=true")
    assert _statuses(plan_json("qwen2.5vl-7b", *whole)[1], "resume") == []


def test_a_plan_imports_neither_torch_nor_numpy() -> None:
    code = "import sys; from taskpack.cli import main; main(['plan', 'qwen2.5vl-72b', '--json'])"
    code += "; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
