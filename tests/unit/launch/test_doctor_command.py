"""`taskpack doctor` as its user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_machine import TASKS, Machine
from taskpack.cli import main
from taskpack.launch.doctor import doctor_json, doctor_text, examine, failed


def test_a_laptop_is_told_that_it_has_no_npu(capsys: pytest.CaptureFixture[str]) -> None:
    if list(Path("/dev").glob("davinci[0-9]*")):
        pytest.skip("this machine has NPUs")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(None, 2) == ["FAIL", "devices", "this machine shows no NPU"]
    assert [line.split(":")[0].strip() for line in lines[1:4]] == ["where", "why", "fix"]
    assert lines[-1].endswith(" fail")


def test_the_result_as_data_has_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--task", str(TASKS / "qwen2.5vl-7b"), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert (code, printed["passed"]) == (1, False)
    assert (printed["task"], printed["release"]) == ("qwen2.5vl-7b", "26.1.0")
    assert sum(printed["counts"].values()) == len(printed["lines"])
    assert set(printed["lines"][0]) == {"name", "status", "what", "where", "why", "fix"}


def test_a_machine_with_all_it_needs_passes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskpack.launch.doctor.check_python", lambda _case: iter(()))
    monkeypatch.setattr("taskpack.launch.checks.machine._FILES", 1)
    case = machine.with_npus(8).case()
    lines = examine(case)
    assert [line for line in lines if line.status == "fail"] == []
    assert not failed(lines)
    assert doctor_json(case, lines)["passed"] is True
    assert "0 fail" in doctor_text(lines)


def test_a_check_that_the_system_stops_is_a_warning(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: object) -> None:
        raise PermissionError(13, "Permission denied", "/dev/shm")

    monkeypatch.setattr("shutil.disk_usage", refuse)
    (machine.root / "dev" / "shm").mkdir()
    (line,) = [line for line in examine(machine.case()) if line.name == "shm"]
    assert (line.status, line.what) == ("warn", "could not be looked at: Permission denied")
    assert line.where == "/dev/shm"


def test_what_a_program_prints_cannot_move_the_cursor(machine: Machine) -> None:
    machine.prints("npu-smi", "\x1b[2J驱动\n", code=1)
    text = doctor_text(examine(machine.case()))
    assert "\x1b" not in text
    assert "驱动" in text


@pytest.mark.parametrize("hosts", ["-oProxyCommand=x", "a,,b", "a b", "a;b", ""])
def test_hosts_that_are_none_are_refused(hosts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"--hosts={hosts}"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: argument --hosts: ")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["where", "why", "fix"]


def test_a_folder_without_a_profile_is_an_error_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--task", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: there is no profile\n")


@pytest.mark.parametrize(
    "words",
    [["--json", "explain", "LOG"], ["explain", "LOG", "--json"], ["explain", "--json", "LOG"]],
)
def test_json_is_asked_for_on_either_side_of_the_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_text("OSError: [Errno 28] No space left on device\n", encoding="utf-8")
    assert main(["doctor", *(str(log) if word == "LOG" else word for word in words)]) == 0
    assert json.loads(capsys.readouterr().out)["first"]["name"] == "disk full"


def test_neither_torch_nor_numpy_is_imported(tmp_path: Path) -> None:
    for name in ("torch", "torch_npu", "numpy", "transformers"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} was imported')\n")
    log = tmp_path / "run.log"
    log.write_text("OSError: [Errno 28] No space left on device\n", encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for words in (["--help"], ["--json"], ["explain", str(log), "--json"]):
        command = [sys.executable, "-m", "taskpack", "doctor", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (done.stderr, bool(done.stdout)) == ("", True)
