from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from taskpack.cli import main
from taskpack.data import convert_llava
from taskpack.errors import DatasetError
from taskpack.rehearse.outcome import Check, Outcome, Step, thirds
from taskpack.rehearse.report import loss_curve, render_report
from taskpack.rehearse.sample_data import take_user_rows, write_sample_rows


def test_the_sample_rows_are_complete_and_convert(tmp_path: Path) -> None:
    rows = write_sample_rows(tmp_path)
    account = convert_llava([rows], tmp_path / "out.json")
    assert account.written == account.read >= 24
    assert account.text_only == 4
    written = json.loads((tmp_path / "out.json").read_text())
    assert [len(row["images"]) for row in written].count(2) == 1
    assert len({row["id"] for row in written}) == len(written)


def test_own_rows_of_either_form_point_at_their_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    llava = tmp_path / "llava.json"
    talk = [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "A cat."}]
    llava.write_text(json.dumps([{"id": "a", "image": "a.png", "conversations": talk}]))
    target = tmp_path / "out" / "rows.json"
    target.parent.mkdir()
    assert "1 written" in take_user_rows(llava, target, media_root=None)
    assert json.loads(target.read_text())[0]["images"] == [str(tmp_path / "a.png")]
    again = tmp_path / "out" / "again.json"
    assert "already" in take_user_rows(target, again, media_root=Path("/elsewhere"))
    assert json.loads(again.read_text())[0]["images"] == [str(tmp_path / "a.png")]


def test_rows_of_no_known_form_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('[{"prompt": "?"}]')
    with pytest.raises(DatasetError, match="neither 'messages' nor 'conversations'"):
        take_user_rows(file, tmp_path / "out.json", media_root=None)


def outcome(*, passed: bool) -> Outcome:
    result = Outcome("m<odel", "lora", "engine", "limits & more")
    result.steps.append(Step("convert", "bash x.sh", 1.5, 0))
    result.checks.append(Check("a & b", passed, "1 < 2"))
    result.losses = [3.0, 2.0, 1.0]
    return result


def test_the_page_escapes_what_it_shows() -> None:
    page = render_report(outcome(passed=True))
    assert "m&lt;odel" in page and "a &amp; b" in page and "1 &lt; 2" in page
    assert "m<odel" not in page


def test_one_failed_check_fails_the_rehearsal() -> None:
    assert outcome(passed=True).passed
    failed = outcome(passed=False)
    assert not failed.passed and not failed.to_json()["passed"]
    assert failed.table().startswith("FAIL  a & b")


def test_a_rehearsal_without_checks_has_not_passed() -> None:
    result = outcome(passed=True)
    result.checks.clear()
    assert not result.passed


def test_the_curve_falls_from_left_to_right() -> None:
    points = loss_curve([3.0, 2.0, 1.0]).split("points='")[1].split("'")[0].split()
    pairs = [tuple(map(float, point.split(","))) for point in points]
    assert pairs == sorted(pairs) and pairs[0][1] < pairs[1][1] < pairs[2][1]
    assert "No curve" in loss_curve([1.0])


def test_thirds_ignore_single_outliers() -> None:
    assert thirds([9, 1, 9, 5, 5, 5, 2, 99, 2]) == (9, 2)
    assert thirds([4.0]) == (4.0, 4.0)


def test_missing_packages_are_named_with_the_command_that_installs_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "peft" else found(name, *a)
    )
    assert main(["rehearse", "qwen2.5vl-32b"]) == 5
    text = capsys.readouterr().err
    assert "error: this Python has no peft" in text
    assert "fix:   pip install 'taskpack[rehearse]'" in text


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "qwen2.5vl-32b", "--steps", "2"]) == 2
    assert "2 steps cannot show a falling loss" in capsys.readouterr().err
