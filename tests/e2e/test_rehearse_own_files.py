"""Rehearsals with the user's rows and model folder, and those that must stop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rehearsal_runs import Rehearsal, run_rehearsal

pytestmark = [pytest.mark.slow, pytest.mark.torch]

BASE = "ckpt/hf_path/Qwen2.5-VL-32B-Instruct"


def rows(folder: Path, *, marker: str = "<image>\n") -> Path:
    from PIL import Image

    Image.new("RGB", (90, 60), (200, 30, 30)).save(folder / "red.png")
    talk = [
        {"role": "user", "content": f"{marker}Which colour is this?"},
        {"role": "assistant", "content": "Red."},
    ]
    path = folder / "rows.json"
    path.write_text(
        json.dumps([{"id": str(n), "images": ["red.png"], "messages": talk} for n in range(8)])
    )
    return path


def test_own_rows_and_own_model_folder_take_the_place_of_stand_ins(
    lora: Rehearsal, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(lora.checkout / BASE, mine)
    config = json.loads((mine / "config.json").read_text())
    config["transformers_version"] = "4.41.2"
    config["hidden_size"] = 512
    (mine / "config.json").write_text(json.dumps(config))
    done = run_rehearsal(
        tmp_path, "--hf", str(mine), "--data", str(rows(tmp_path)), "--steps", "6", tuning="lora"
    )
    assert done.code == 0, done.progress
    assert done.result["facts"]["data"] == "8 rows, already of MindSpeed-MM's form"
    assert len(done.result["losses"]) == 6
    narrowed = json.loads((done.checkout / BASE / "config.json").read_text())
    assert narrowed["transformers_version"] == "4.41.2"
    assert narrowed["hidden_size"] == 32


def test_a_bad_row_stops_the_rehearsal_where_it_would_stop_the_training(tmp_path: Path) -> None:
    done = run_rehearsal(tmp_path, "--data", str(rows(tmp_path, marker="")), tuning="lora")
    assert done.code == 5
    assert "error: 0 <image> for 1 image(s)" in done.progress
    assert "step 'fine-tune' ended with 4" in done.progress
    assert "<span class='FAIL'>" in done.report.read_text()


def test_a_value_set_on_the_command_line_reaches_the_scripts(tmp_path: Path) -> None:
    done = run_rehearsal(
        tmp_path, "--set", "tuning.lora.targets=[linear_qkv]", "--steps", "3", tuning="lora"
    )
    script = (done.checkout / "tasks" / "tiny" / "finetune_qwen2_5_vl.sh").read_text()
    assert "--lora-target-modules linear_qkv\n" in script
    checks = {check["name"]: check for check in done.result["checks"]}
    assert "9 of 9 adapted weights moved" in checks["only adapted weights moved"]["detail"]


@pytest.mark.parametrize(
    ("options", "tuning", "code", "what"),
    [
        (["--hf", "absent"], "lora", 3, "error: absent lacks config.json"),
        (["--data", "absent.json"], "lora", 4, "error: there is no file absent.json"),
        ([], "adapter", 2, "error: TUNING is 'adapter'"),
        (["--set", "train.itres=3"], "lora", 2, "itres"),
    ],
)
def test_a_wrong_wish_is_refused_with_its_reason(
    tmp_path: Path, options: list[str], tuning: str, code: int, what: str
) -> None:
    done = run_rehearsal(tmp_path, *options, tuning=tuning)
    assert done.code == code
    assert what in done.progress
    assert "Traceback" not in done.progress


VARIANTS = {
    "canonical, vision tower free": (
        "lora",
        [
            "tuning.lora.canonical=true",
            "tuning.lora.targets=[q_proj,k_proj,v_proj,linear_proj,gate_proj,up_proj,linear_qkv]",
            "train.freeze=[]",
        ],
    ),
    "tied head, virtual stages": (
        "full",
        [
            "tuning.mode=full",
            "architecture.text.tied=true",
            "architecture.text.layers=6",
            "parallel.text_layers=[[1,1,1],[1,1,1]]",
            "parallel.vision_layers=[[2,0,0],[0,0,0]]",
            "platform.npus_per_node=6",
        ],
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_layouts_pass_as_well(tmp_path: Path, name: str) -> None:
    tuning, values = VARIANTS[name]
    options = [word for value in values for word in ("--set", value)]
    done = run_rehearsal(tmp_path, "--steps", "4", *options, tuning=tuning)
    assert done.code == 0, done.progress
    assert done.result["passed"]
