"""A conversion that was interrupted goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from taskpack.cli import main
from taskpack.data import ConvertOptions, Finding, OnBad, convert

ROWS = 40_000
STOP = 30_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    with path.open("w") as stream:
        for number in range(ROWS):
            answer = None if number in (5, STOP) else "x" * (number % 50 + 1)
            stream.write(json.dumps({"query": "Hello?", "response": answer}) + "\n")
    return path


def interrupt(source: Path, out: Path) -> None:
    def report(finding: Finding) -> None:
        if finding.row == STOP:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert([source], out, ConvertOptions(on_bad=OnBad.DROP), report=report)


def run(source: Path, out: Path, *options: str) -> int:
    words = ["data", "convert", str(source), str(out), "--on-bad", "drop", "--json", *options]
    return main(words)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_rows_are_those_of_a_run_without_interruption(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: str
) -> None:
    out, whole = tmp_path / "out.json", tmp_path / "whole.json"
    interrupt(source, out)
    assert not out.exists()
    assert run(source, out, "--resume", "--workers", workers) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert run(source, whole) == 0
    straight = json.loads(capsys.readouterr().out)
    assert out.read_bytes() == whole.read_bytes()
    for account in (resumed, straight):
        del account["outputs"]
    assert resumed == straight
    assert resumed["written"] == ROWS - 2
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["in.jsonl", "out.json", "whole.json"]


def test_other_inputs_cannot_be_gone_on_with(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    interrupt(source, out)
    with source.open("a") as stream:
        stream.write("\n")
    assert run(source, out, "--resume") == 5
    assert "had other inputs or options" in capsys.readouterr().err
    assert run(source, out) == 0


def test_there_must_be_something_to_resume(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source, tmp_path / "out.json", "--resume") == 5
    assert "there is no interrupted conversion" in capsys.readouterr().err
    assert run(source, tmp_path / "out.json", "--resume", "--shuffle") == 2


def test_two_runs_do_not_write_one_file(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    others: dict[str, int] = {}

    def report(_finding: Finding) -> None:
        for more in ("", "--shuffle", "--overwrite"):
            others[more] = run(source, out, *more.split())

    options = ConvertOptions(on_bad=OnBad.DROP, max_samples=100)
    assert convert([source], out, options, report=report).written == 99
    assert others == {"": 5, "--shuffle": 5, "--overwrite": 5}
    assert capsys.readouterr().err.count("another run is writing out.json") == 3
    assert len(json.loads(out.read_text())) == 99


def test_a_file_held_by_another_run_stops_a_split_before_it_begins(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(_finding: Finding) -> None:
        assert run(source, tmp_path / "out.json", "--split", "0.5,0.5") == 5
        assert not list(tmp_path.glob("out_train*"))

    options = ConvertOptions(on_bad=OnBad.DROP, max_samples=100)
    convert([source], tmp_path / "out_val.json", options, report=report)
    assert "another run is writing out_val.json" in capsys.readouterr().err


def test_a_partial_file_that_lost_rows_cannot_be_gone_on_with(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    interrupt(source, out)
    partial = tmp_path / "out.json.partial"
    partial.write_bytes(partial.read_bytes()[:1000])
    assert run(source, out, "--resume") == 5
    assert "holds less than was written" in capsys.readouterr().err
    assert len(partial.read_bytes()) == 1000
