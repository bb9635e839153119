"""Conversions run where torch and transformers are not installed."""

import os
import subprocess
import sys
from pathlib import Path

import builders
import pytest


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing torch, safetensors or transformers fails."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("torch", "safetensors", "transformers", "peft"):
        (broken / f"{name}.py").write_text(f"raise ImportError('{name} was imported')\n")
    return {**os.environ, "PYTHONPATH": str(broken)}


def test_weights_and_adapters_import_no_torch(
    without_torch: dict[str, str], tmp_path: Path
) -> None:
    hf = builders.make_hf(tmp_path / "hf")
    mm, back, again = tmp_path / "mm", tmp_path / "back", tmp_path / "again"
    merged, exported, peft = tmp_path / "merged", tmp_path / "exported", tmp_path / "peft"
    assert builders.convert(hf, tmp_path / "base") == 0
    adapter = ("--adapter", builders.make_adapter(tmp_path / "adapter", tmp_path / "base"))
    one_rank = ("--to-tp", "1", "--to-llm-layers", "[4]", "--to-vit-layers", "[4]")
    for words in (
        ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *builders.LAYOUT_FLAGS),
        ("convert", "mm-to-hf", "--mm", mm, "--hf-ref", hf, "--hf", back),
        ("convert", "resplit", "--mm", mm, "--out", again, *one_rank),
        ("verify", hf, again),
        ("verify", mm),
        ("inspect", mm),
        ("inspect", back),
        ("lora", "merge", "--base", mm, *adapter, "--out", merged),
        ("verify", merged, mm, *adapter),
        ("export", "--base", mm, *adapter, "--hf-ref", hf, "--hf", exported),
        ("lora", "to-peft", *adapter, "--out", peft, "--hf-ref", hf),
        (
            *("lora", "from-peft", "--peft", peft, "--out", tmp_path / "cut", "--hf-ref", hf),
            *builders.LAYOUT_FLAGS,
        ),
        ("mm-convert", "--help"),
        ("--help",),
    ):
        command = [sys.executable, "-m", "taskpack", *map(str, words)]
        ended = subprocess.run(command, env=without_torch, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
