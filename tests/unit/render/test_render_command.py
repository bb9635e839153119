"""`taskpack render`: what it writes, removes, leaves alone and reports."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from taskpack.cli import main

MODEL = "qwen2.5vl-32b"


@pytest.fixture
def task(checkout: Path) -> Path:
    return checkout / "tasks" / MODEL


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_fresh_render_is_up_to_date(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert task.is_dir()
    assert main(["render", MODEL, "--check"]) == 0
    assert capsys.readouterr().out == f"{MODEL} is what its profile renders to\n"


def test_rendering_again_changes_nothing(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in task.rglob("*")}
    assert main(["render", MODEL]) == 0
    assert capsys.readouterr().out == "nothing to change\n"
    assert {path: path.stat().st_mtime_ns for path in task.rglob("*")} == before


def test_scripts_are_executable_and_other_files_are_not(task: Path) -> None:
    for path in task.rglob("*"):
        if path.is_file() and path.name != "profile.yaml":
            assert os.access(path, os.X_OK) == (path.suffix == ".sh"), path


def test_a_lost_run_bit_comes_back(task: Path) -> None:
    script = task / "finetune_qwen2_5_vl.sh"
    script.chmod(0o644)
    assert main(["render", MODEL]) == 0
    assert os.access(script, os.X_OK)


def test_editing_the_profile_rewrites_what_depends_on_it(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(task / "profile.yaml", "  seq_length: 1024 ", "  seq_length: 2048 ")
    assert main(["render", MODEL, "--json"]) == 0
    changed = {Path(path).name for path in json.loads(capsys.readouterr().out)["changed"]}
    assert {"model.json", "finetune_qwen2_5_vl.sh"} <= changed
    assert "data.json" not in changed
    assert json.loads((task / "model.json").read_text())["text_decoder"]["seq_length"] == 2048


def test_check_names_the_line_that_was_edited_by_hand(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(task / "model.json", '        "rope_theta": 1000000.0,', '        "rope_theta": 10000.0,')
    line = (task / "model.json").read_text().splitlines().index(
        '        "rope_theta": 10000.0,'
    ) + 1
    assert main(["render", MODEL, "--check"]) == 1
    assert capsys.readouterr().err == (
        "error: model.json is not what the profile renders to\n"
        f"  where: {task / 'model.json'}:{line}\n"
        "  why:   expected '        \"rope_theta\": 1000000.0,', "
        "found '        \"rope_theta\": 10000.0,'\n"
        "  fix:   edit the profile instead, then run make render\n"
    )


def test_check_names_a_file_cut_short(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = task / "data.json"
    path.write_text(path.read_text()[:-2])
    assert main(["render", MODEL, "--check"]) == 1
    assert "why:   expected '}', found ''" in capsys.readouterr().err


def test_check_reports_every_file(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (task / "data.json").unlink()
    (task / "lib" / "messages.sh").write_text("changed\n")
    assert main(["render", MODEL, "--check", "--json"]) == 1
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error["what"] for error in errors] == [
        "data.json is missing",
        "lib/messages.sh is not what the profile renders to",
    ]


def test_check_writes_nothing(task: Path) -> None:
    (task / "data.json").unlink()
    assert main(["render", MODEL, "--check"]) == 1
    assert not (task / "data.json").exists()


def test_a_file_that_no_template_makes_any_more_is_removed(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = task / "old.sh"
    old.write_bytes((task / "finetune_qwen2_5_vl.sh").read_bytes())
    assert main(["render", MODEL, "--check"]) == 1
    assert capsys.readouterr().err.startswith("error: old.sh is rendered no more\n")
    assert main(["render", MODEL]) == 0
    assert not old.exists()


def test_a_file_of_the_users_own_is_left_alone(task: Path) -> None:
    own = task / "notes.md"
    own.write_text("mine\n")
    assert main(["render", MODEL]) == 0
    assert main(["render", MODEL, "--check"]) == 0
    assert own.read_text() == "mine\n"


def test_check_covers_the_files_beside_the_tasks(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "tasks" / "finetune.sh").unlink()
    assert main(["render", "--all", "--check"]) == 1
    assert capsys.readouterr().err.startswith("error: finetune.sh is missing\n")


def test_all_renders_every_task(checkout: Path) -> None:
    copy = checkout / "tasks" / "copy" / "profile.yaml"
    copy.parent.mkdir()
    text = (checkout / "tasks" / MODEL / "profile.yaml").read_text()
    copy.write_text(text.replace(f"model: {MODEL}\n", "model: copy\n"))
    assert main(["render", "--all"]) == 0
    assert (copy.parent / "model.json").is_file()
    assert main(["render", "--all", "--check"]) == 0


def test_out_writes_elsewhere_and_only_there(checkout: Path, task: Path) -> None:
    before = (task / "model.json").read_bytes()
    out = checkout / "elsewhere"
    argv = ["render", MODEL, "--out", str(out), "--set", "train.seq_length=4096"]
    assert main([*argv, "--release", "2.2.0"]) == 0
    model = json.loads((out / "model.json").read_text())
    assert (model["text_decoder"]["seq_length"], model["video_token_id"]) == (4096, 151656)
    assert (task / "model.json").read_bytes() == before
    assert "26.1.0" not in (out / "finetune_qwen2_5_vl.sh").read_text()


def test_out_holds_one_task_only(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = checkout / "tasks" / "other"
    other.mkdir()
    text = (checkout / "tasks" / MODEL / "profile.yaml").read_text()
    (other / "profile.yaml").write_text(text.replace(f"model: {MODEL}\n", "model: other\n"))
    assert main(["render", "--all", "--out", "x"]) == 2
    assert capsys.readouterr().err == (
        "error: 2 tasks cannot share the folder x\n"
        "  where: --out\n"
        "  why:   each task is a folder of its own\n"
        "  fix:   name one task, or leave --out out\n"
    )


def test_all_reports_the_faults_of_every_task(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (checkout / "tasks" / MODEL / "profile.yaml").read_text()
    for name in ("first", "second"):
        other = checkout / "tasks" / name
        other.mkdir()
        other.joinpath("profile.yaml").write_text(text.replace("tp: 2 ", "tp: 3 "))
    assert main(["render", "--all"]) == 2
    error = capsys.readouterr().err
    for name in ("first", "second"):
        assert f"where: tasks/{name}/profile.yaml" in error
    assert error.count("parallel.tp 3 does not divide") == 2


def test_a_bad_profile_renders_nothing(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in task.rglob("*") if path.is_file()}
    assert main(["render", MODEL, "--set", "parallel.tp=3"]) == 2
    assert "use 1, 2, 4 or 8" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in task.rglob("*") if path.is_file()} == before


def test_no_draft_is_left_behind(task: Path) -> None:
    assert not [path for path in task.rglob(".*") if path.is_file()]


def test_an_unknown_release_is_refused(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert task.is_dir()
    assert main(["render", MODEL, "--release", "26.2"]) == 2
    assert "release '26.2' of MindSpeed-MM is not known" in capsys.readouterr().err


def test_overrides_that_the_profile_does_not_hold_are_noted(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", MODEL, "--set", "train.seq_length=2048"]) == 0
    assert capsys.readouterr().err == (
        "note: rendered with train.seq_length=2048; the profile itself is unchanged, "
        "so `render --check` will name these files\n"
    )
    assert json.loads((task / "model.json").read_text())["text_decoder"]["seq_length"] == 2048
    assert main(["render", MODEL, "--check"]) == 1


def test_the_committed_tasks_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--all", "--check"]) == 0, capsys.readouterr().err
