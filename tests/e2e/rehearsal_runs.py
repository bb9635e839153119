"""Rehearsals of a task of a few layers on two tensor parallel ranks and two stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.paths import task_dir
from taskpack.profile import load_profile, profile_from_dict, to_yaml


@dataclass(frozen=True)
class Rehearsal:
    """A finished `taskpack rehearse tiny --json`."""

    code: int
    result: dict[str, Any]
    progress: str
    checkout: Path
    report: Path


def write_tiny_task(root: Path) -> None:
    profile = load_profile(task_dir("qwen2.5vl-32b") / "profile.yaml")
    data = json.loads(json.dumps(profile.model_dump(mode="json", by_alias=True)))
    data["model"] = "tiny"
    data["architecture"]["text"].update(layers=3, attention_heads=4, query_groups=2)
    data["architecture"]["text"].update(hidden_size=512, ffn_hidden_size=1024)
    data["architecture"]["vision"].update(layers=2, attention_heads=2, full_attention_layers=[1])
    data["architecture"]["vision"].update(hidden_size=160, ffn_hidden_size=320)
    data["parallel"].update(text_layers=[1, 2], vision_layers=[2, 0])
    data["generate"].update(text_layers=None, vision_layers=None)
    data["platform"].update(nodes=1, npus_per_node=4)
    folder = root / "tasks" / "tiny"
    folder.mkdir(parents=True)
    tiny = profile_from_dict(data, where="tiny")
    (folder / "profile.yaml").write_text(to_yaml(tiny), encoding="utf-8")


def run_rehearsal(root: Path, *options: str, tuning: str) -> Rehearsal:
    if not (root / "tasks").exists():
        write_tiny_task(root)
    checkout, report = root / "checkout", root / "report.html"
    command = [sys.executable, "-m", "taskpack", "rehearse", "tiny", "--json"]
    command += ["--keep", str(checkout), "--report", str(report), *options]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "TUNING": tuning},
        capture_output=True,
        text=True,
        timeout=600,
    )
    result = json.loads(done.stdout) if done.stdout.strip() else {}
    return Rehearsal(done.returncode, result, done.stderr, checkout, report)
