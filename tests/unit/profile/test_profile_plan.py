"""Parameter counts, and the list of tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from taskpack.cli import main
from taskpack.profile import Profile
from taskpack.profile.parameters import modules


def test_the_32b_has_its_published_number_of_parameters(load: Callable[..., Profile]) -> None:
    assert sum(module.parameters for module in modules(load(), "full")) == 33_452_718_336


def test_a_tied_head_is_counted_once(load: Callable[..., Profile]) -> None:
    sizes = {m.name: m.parameters for m in modules(load("architecture.text.tied=true"), "full")}
    assert sizes["text output"] == 5120  # the final norm alone
    assert sizes["text embedding"] == 152064 * 5120


def test_full_tuning_trains_what_is_not_frozen(load: Callable[..., Profile]) -> None:
    how = {m.name: m.how for m in modules(load("train.freeze=[vision]"), "full")}
    assert how == {
        "vision encoder": "frozen",
        "vision projector": "full",
        "text embedding": "full",
        "text layers": "full",
        "text output": "full",
    }


def test_fused_adapters_share_one_a_for_qkv_and_for_gate_and_up(
    load: Callable[..., Profile],
) -> None:
    text = {m.name: m for m in modules(load(), "lora")}["text layers"]
    hidden, ffn, keys, rank = 5120, 27648, 8 * 128, 8
    inputs = hidden + hidden + hidden + ffn
    outputs = (hidden + 2 * keys) + hidden + 2 * ffn + hidden
    assert text.trainable == 64 * rank * (inputs + outputs)


def test_canonical_adapters_have_an_a_each(load: Callable[..., Profile]) -> None:
    profile = load("tuning.lora.canonical=true", "tuning.lora.targets=[q_proj, k_proj, v_proj]")
    text = {m.name: m for m in modules(profile, "lora")}["text layers"]
    hidden, keys = 5120, 8 * 128
    assert text.trainable == 64 * 8 * (3 * hidden + hidden + 2 * keys)
    assert text.how == "LoRA on q_proj k_proj v_proj"


def test_canonical_vision_keeps_its_qkv_in_one_module(load: Callable[..., Profile]) -> None:
    profile = load(
        "tuning.lora.canonical=true", "tuning.lora.targets=[linear_qkv]", "train.freeze=[]"
    )
    how = {m.name: m.how for m in modules(profile, "lora")}
    assert how["vision encoder"] == "LoRA on linear_qkv"
    assert how["text layers"] == "frozen"


def test_frozen_vision_gets_no_adapter(load: Callable[..., Profile]) -> None:
    trained = {m.name: m.trainable for m in modules(load("train.freeze=[projector]"), "lora")}
    assert trained["vision encoder"] > 0
    assert trained["vision projector"] == 0


def test_one_node_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen2.5vl-32b", "--nodes", "1", "--json"]) == 2
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["exit_code"] == 2
    assert report["errors"][0]["fix"] == "use 2 nodes of 8 NPUs or a multiple of 2"
    assert "TP 2 x PP 8 x CP 1 = 16 NPUs" in captured.err


def test_the_list_of_tasks_shows_size_layout_and_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    row = "qwen2.5vl-32b 33.5 B TP2 PP8 CP1 16 2 x 8 lora 26.1.0 2.1.0 to 26.1.0"
    assert row.split() in rows


def test_tasks_are_listed_by_family_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert [row["model"] for row in rows] == [
        *(f"qwen2.5vl-{size}" for size in ("3b", "7b", "32b", "72b")),
        *(f"qwen2vl-{size}" for size in ("2b", "7b", "72b")),
    ]
    assert rows[-1]["releases"] == ["2.1.0", "2.2.0", "2.3.0", "26.0.0"]


def test_the_list_of_tasks_has_a_machine_readable_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--json"]) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert rows["qwen2.5vl-32b"]["parameters"] == 33_452_718_336
    assert rows["qwen2.5vl-32b"]["least_npus"] == 16


def test_an_unknown_task_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen2.5vl-23b"]) == 2
    assert (
        "did you mean 'qwen2.5vl-3b' or 'qwen2.5vl-72b' or 'qwen2.5vl-32b'?"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "command", ["--help", "plan qwen2.5vl-32b", "render qwen2.5vl-32b --check"]
)
def test_no_command_of_this_group_imports_torch(command: str) -> None:
    code = (
        "import sys; from taskpack.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, *command.split()], check=False, capture_output=True
        ).returncode
        == 0
    )
