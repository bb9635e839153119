"""Profiles of the tasks, with overrides, and the command as its user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning import Load, PlanJson
from taskpack.cli import main
from taskpack.profile import Profile, load_profile

TASKS = Path(__file__).parents[3] / "tasks"


@pytest.fixture
def load() -> Load:
    """Load the profile of a task with overrides."""

    def load_with(model: str, *overrides: str) -> Profile:
        return load_profile(TASKS / model / "profile.yaml", overrides)

    return load_with


@pytest.fixture
def plan_json(capsys: pytest.CaptureFixture[str]) -> PlanJson:
    """Run `taskpack plan ... --json`; give the exit code and what it printed."""

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        code = main(["plan", *words, "--json"])
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, printed

    return run
