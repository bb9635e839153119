"""What the engine refuses before it trains, as a process that was started wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from taskpack.profile import Profile
from taskpack.rehearse.engine import main
from taskpack.rehearse.twin import Wishes, narrow
from taskpack.render import render_task

Case = tuple[list[str], str]


@pytest.fixture
def task(tiny: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    render_task(narrow(tiny, Wishes("lora")), tmp_path / "task")
    (tmp_path / "tools.json").write_text("{}")
    (tmp_path / "mm").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKPACK_CLUSTER_SIZE", "4")
    return tmp_path / "task"


def words(**changes: str) -> list[str]:
    values = {
        "mm-model": "task/model.json",
        "mm-data": "task/data.json",
        "mm-tool": "tools.json",
        "tensor-model-parallel-size": "2",
        "pipeline-model-parallel-size": "2",
        "micro-batch-size": "1",
        "global-batch-size": "4",
        "train-iters": "2",
        "seq-length": "64",
        "save-interval": "1",
        "load": "mm",
        "save": "save",
    }
    values |= {name.replace("_", "-"): value for name, value in changes.items()}
    flags = [word for name, value in values.items() for word in (f"--{name}", value) if value]
    bare = ["bf16", "no-load-optim", "no-load-rng", "no-save-optim", "no-save-rng"]
    return [*flags, *(f"--{name}" for name in bare)]


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main("26.1.0", argv)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"mm_model": "absent.json"}, "--mm-model absent.json cannot be read"),
        ({"global_batch_size": "3", "micro_batch_size": "2"}, "3 is no multiple of 2"),
        ({"pipeline_model_parallel_size": "3"}, "text_decoder has 3 layers on 2 stages"),
        ({"tensor_model_parallel_size": "4"}, "4 NPUs cannot hold copies of 8"),
        ({"train_iters": "0"}, "--train-iters is missing or not positive"),
        ({"load_base_model": "mm"}, "the run resumes another (--load-base-model)"),
    ],
)
@pytest.mark.usefixtures("task")
def test_a_contradiction_is_named(
    capsys: pytest.CaptureFixture[str], changes: dict[str, str], what: str
) -> None:
    code, text = refusal(words(**changes), capsys)
    assert code == 2
    assert what in text


@pytest.mark.usefixtures("task")
def test_weights_without_a_tracker_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = refusal(words(), capsys)
    assert code == 3
    assert text.splitlines()[0] == "error: --load mm has no latest_checkpointed_iteration.txt"


def test_comments_in_json_are_refused_as_the_trainer_refuses_them(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (task / "data.json").write_text("{} // the data")
    code, text = refusal(words(), capsys)
    assert code == 2
    assert "--mm-data task/data.json is not strict JSON" in text


def test_a_key_that_is_gone_is_named(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((task / "model.json").read_text())
    del document["text_decoder"]["pipeline_num_layers"]
    (task / "model.json").write_text(json.dumps(document))
    assert "lacks text_decoder.pipeline_num_layers" in refusal(words(), capsys)[1]


@pytest.mark.usefixtures("task")
def test_only_one_of_several_processes_reports(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    code, text = refusal(words(), capsys)
    assert (code, text) == (3, "")
