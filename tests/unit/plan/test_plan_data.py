"""Data files held against the batch of the profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning import PlanJson, settings


def _row(number: int, **more: Any) -> dict[str, Any]:
    talk = [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "Yes."}]
    return {"id": number, "images": ["a.jpg"], "messages": talk, **more}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of 960 good rows."""
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([_row(number) for number in range(960)]), encoding="utf-8")
    return path


def _data(printed: dict[str, Any]) -> list[tuple[str, str]]:
    return [(c["status"], c["what"]) for c in printed["checks"] if c["name"] == "data"]


def test_rows_become_steps_and_epochs(rows: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(rows))
    assert code == 0
    assert _data(printed) == [("pass", "960 rows; 4 fill a micro batch of every copy")]
    assert (printed["rows"], printed["steps_per_epoch"]) == (960, 5.0)


def test_several_files_are_one_set(rows: Path, plan_json: PlanJson) -> None:
    assert plan_json("qwen2.5vl-7b", "--data", str(rows), "--data", str(rows))[1]["rows"] == 1920


def test_fewer_rows_than_a_batch_fail_and_as_many_pass(tmp_path: Path, plan_json: PlanJson) -> None:
    path = tmp_path / "few.json"
    path.write_text(json.dumps([_row(number) for number in range(3)]), encoding="utf-8")
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(path))
    assert code == 1
    assert _data(printed)[0][0] == "fail"
    assert "3 good rows do not fill one batch of 4" in _data(printed)[0][1]
    path.write_text(json.dumps([_row(number) for number in range(4)]), encoding="utf-8")
    assert plan_json("qwen2.5vl-7b", "--data", str(path))[0] == 0


def test_more_samples_than_rows_fail_and_as_many_pass(rows: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json(
        "qwen2.5vl-7b", "--data", str(rows), *settings("data.max_samples=961")
    )
    assert (code, _data(printed)[0][0]) == (1, "fail")
    edge = plan_json("qwen2.5vl-7b", "--data", str(rows), *settings("data.max_samples=960"))
    assert (edge[0], _data(edge[1])[0][0]) == (0, "pass")


def test_a_limit_left_from_a_trial_is_a_note(rows: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(rows), *settings("data.max_samples=96"))
    assert code == 0
    assert ("note", "data.max_samples reads 96 of 960 rows") in _data(printed)
    assert printed["rows"] == 96


def test_a_column_that_no_row_has_fails(rows: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(rows), *settings("data.media=videos"))
    assert code == 1
    assert "no row has the key 'videos'" in _data(printed)[0][1]


def test_a_run_shorter_than_the_data_is_a_note(rows: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(rows), *settings("train.iters=4"))
    assert (code, _data(printed)[1]) == (0, ("note", "4 steps of 192 see 80% of 960 rows"))
    assert (
        len(_data(plan_json("qwen2.5vl-7b", "--data", str(rows), *settings("train.iters=5"))[1]))
        == 1
    )


def test_a_file_that_was_cut_off_is_a_failed_check(rows: Path, plan_json: PlanJson) -> None:
    rows.write_text(rows.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(rows))
    assert (code, _data(printed)[0][0], printed["rows"]) == (1, "fail", None)
    assert "rows.json is not valid JSON" in _data(printed)[0][1]


def test_a_file_that_is_not_there_is_a_failed_check(tmp_path: Path, plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--data", str(tmp_path / "none.json"))
    assert (code, _data(printed)[0][0]) == (1, "fail")
