"""The drawn plan: both kinds of file, what stands in it, and the same bytes every time."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from taskpack.cli import main


def _texts(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text(encoding="utf-8"))


def test_the_picture_names_every_stage_its_layers_and_its_memory(tmp_path: Path) -> None:
    svg = tmp_path / "plan.svg"
    assert main(["plan", "qwen2.5vl-7b", "--svg", str(svg)]) == 0
    texts = _texts(svg)
    title = "Qwen2.5-VL-7B-Instruct, full: TP 1 x PP 2 x CP 1 x DP 4 = 8 NPUs"
    assert title in texts
    assert {"vision 32", "text 12", "text 16", "NPU, 64 GiB", "optimizer"} <= set(texts)
    assert [text.strip() for text in texts].count("44.0") == 1
    assert texts.count("stage 1") == 2


def test_a_block_too_short_for_its_name_is_named_beside_it(tmp_path: Path) -> None:
    svg = tmp_path / "plan.svg"
    layers = ["--set", "parallel.text_layers=[1, 10, 10, 7]"]
    layers += ["--set", "parallel.vision_layers=[32, 0, 0, 0]"]
    assert main(["plan", "qwen2.5vl-7b", *layers, "--svg", str(svg)]) == 0
    assert "text 1, 1.45 B, 778.1 M trains" in [text.strip() for text in _texts(svg)]


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_plan_is_the_same_file(tmp_path: Path, kind: str, start: bytes) -> None:
    files = [tmp_path / f"{name}.{kind}" for name in ("a", "b")]
    for path in files:
        assert main(["plan", "qwen2.5vl-3b", f"--{kind}", str(path)]) == 0
    first, second = (path.read_bytes() for path in files)
    assert first.startswith(start)
    assert first == second


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plan", "qwen2.5vl-3b", "--png", str(tmp_path / "plan.png")]) == 5
    assert "fix:   pip install 'taskpack[plot]'" in capsys.readouterr().err
