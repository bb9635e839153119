"""The committed tasks: their folders, and what the other tools make of their profiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from taskpack.cli import main
from taskpack.profile import load_profile
from taskpack.weights.task import task_layout, task_model

TASKS = Path(__file__).parents[3] / "tasks"
MODELS = sorted(path.parent.name for path in TASKS.glob("*/profile.yaml"))

# parameters as published, in thousands of millions
PUBLISHED = {
    "qwen2.5vl-3b": 3.75,
    "qwen2.5vl-7b": 8.29,
    "qwen2.5vl-32b": 33.45,
    "qwen2.5vl-72b": 73.41,
    "qwen2vl-2b": 2.21,
    "qwen2vl-7b": 8.29,
    "qwen2vl-72b": 73.41,
}


def test_seven_tasks_are_there() -> None:
    assert set(MODELS) == set(PUBLISHED)


def test_each_has_the_parameters_of_the_published_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["models"]:
        assert row["parameters"] / 1e9 == pytest.approx(PUBLISHED[row["model"]], abs=0.01)


@pytest.mark.parametrize("model", MODELS)
def test_weights_see_the_shape_and_the_layout_of_the_profile(model: str) -> None:
    profile = load_profile(TASKS / model / "profile.yaml")
    dims, layout = task_model(profile).dims, task_layout(profile)
    text, vision = profile.architecture.text, profile.architecture.vision
    assert (dims["H"], dims["F"], dims["layers"]) == (
        text.hidden_size,
        text.ffn_hidden_size,
        text.layers,
    )
    assert (dims["VH"], dims["VF"]) == (vision.hidden_size, vision.ffn_hidden_size)
    assert (layout.tp_size, layout.pp_size) == (profile.parallel.tp, profile.parallel.pp)


@pytest.mark.parametrize("model", MODELS)
def test_a_folder_holds_one_launcher_of_its_family(model: str) -> None:
    names = {path.name for path in (TASKS / model).glob("*.sh")}
    script = "qwen2_5_vl" if model.startswith("qwen2.5vl") else "qwen2_vl"
    assert {name for name in names if "qwen2" in name} == {
        f"{verb}_{script}.sh" for verb in ("finetune", "inference", "evaluate")
    }
