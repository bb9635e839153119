import json
import sys
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main
from taskpack.data.mock import MockOptions, make_mock


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three thousand rows in two files; some are bad, some carry markers to repair."""
    folder = tmp_path_factory.mktemp("ray")
    make_mock(folder / "mock.json", MockOptions(rows=4, sizes=((56, 56),)))
    (mock, *_) = json.loads((folder / "mock.json").read_text())
    for name in ("a.json", "b.jsonl"):
        values: list[dict[str, Any]] = [{**mock, "id": None} for _ in range(1500)]
        values[700] = {**values[700], "messages": []}
        values[900] = {**values[900], "images": ["absent.png"]}
        text = json.dumps(values) if name == "a.json" else "\n".join(map(json.dumps, values))
        (folder / name).write_text(text)
    return folder


def run(*words: object) -> int:
    return main(["data", *map(str, words)])


def test_ray_writes_what_the_plain_engine_writes(
    rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = [rows / "a.json", rows / "b.jsonl"]
    told = []
    for engine in (["--workers", 0], ["--engine", "ray", "--workers", 2]):
        out = tmp_path / "out.json"
        code = run(
            "convert", *inputs, out, "--media-root", rows, "--on-bad", "drop", "--json", *engine,
            "--overwrite",
        )  # fmt: skip
        assert code == 0
        told.append((json.loads(capfd.readouterr().out), out.read_bytes()))
    assert told[0] == told[1]
    assert told[0][0]["dropped"] == {"bad_turns": 2, "missing_image": 2}


def test_ray_checks_as_the_plain_engine_checks(
    rows: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = []
    for engine in (["--workers", 0], ["--engine", "ray", "--workers", 2]):
        task = ("--task", "tasks/qwen2.5vl-7b", "--media-root", rows)
        assert run("check", rows / "a.json", *task, "--json", *engine) == 1
        told.append(json.loads(capfd.readouterr().out))
    assert told[0] == told[1]
    assert [found["row"] for found in told[0]["findings"]] == [700, 900]


@pytest.mark.parametrize(
    ("address", "absent", "said"),
    [
        ("127.0.0.1:1", False, "Ray does not start"),
        ("", True, "this Python has no Ray"),
    ],
)
def test_without_ray_there_is_an_error_and_no_output(
    address: str,
    absent: bool,
    said: str,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    if absent:
        monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "out.json"
    assert run("convert", rows / "a.json", out, "--media-root", rows, "--engine", "ray") == 5
    assert said in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
