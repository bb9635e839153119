"""`taskpack diff-upstream`: how a task differs from the example that its release ships."""

from __future__ import annotations

import json

import pytest
from taskpack.cli import main


def test_each_difference_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff-upstream", "qwen2.5vl-3b", "--release", "2.3.0"]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title == (
        "qwen2.5vl-3b and finetune_qwen2_5_vl_3b.sh of MindSpeed-MM 2.3.0: 8 values differ"
    )
    assert head.split() == ["section", "name", "shipped", "rendered"]
    assert ["settings", "MASTER_PORT", "6000", "29501"] in [row.split() for row in rows]
    assert ["flags", "--exit-on-missing-checkpoint", "-", "set"] in [row.split() for row in rows]
    assert len(rows) == 8


def test_json_leaves_out_the_side_that_has_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["diff-upstream", "qwen2.5vl-7b", "--json", "--set", "train.seed=1"]
    assert main(argv) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["example"] == "finetune_qwen2_5_vl_7b.sh"
    rows = {row["name"]: row for row in facts["differences"]}
    assert rows["--seed"] == {
        "section": "flags",
        "name": "--seed",
        "shipped": "42",
        "rendered": "1",
    }
    assert "shipped" not in rows["--min-lr"]
    assert "rendered" not in rows["patch.bridge_patch"]


def test_a_release_without_the_family_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff-upstream", "qwen2vl-7b", "--release", "26.1.0"]) == 2
    assert "MindSpeed-MM 26.1.0 has no example of Qwen2-VL" in capsys.readouterr().err
