"""The 32B profile, and a checkout with a rendered copy of its task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from taskpack.profile import Profile, load_profile
from taskpack.render import render_pack, render_task

PROFILE = Path(__file__).parents[3] / "tasks" / "qwen2.5vl-32b" / "profile.yaml"


@pytest.fixture
def load() -> Callable[..., Profile]:
    """Load the 32B profile with overrides."""

    def load_with(*overrides: str) -> Profile:
        return load_profile(PROFILE, overrides)

    return load_with


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder whose tasks/ holds a freshly rendered copy of the 32B task."""
    task = tmp_path / "tasks" / "qwen2.5vl-32b"
    task.mkdir(parents=True)
    (task / "profile.yaml").write_bytes(PROFILE.read_bytes())
    render_task(load_profile(task / "profile.yaml"), task)
    render_pack(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    return tmp_path
