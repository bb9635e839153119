"""The 32B profile, and copies of it with a line changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from taskpack.profile import Profile, load_profile

Edit = Callable[..., Path]

PROFILE = Path(__file__).parents[3] / "tasks" / "qwen2.5vl-32b" / "profile.yaml"


@pytest.fixture
def profile_text() -> str:
    return PROFILE.read_text(encoding="utf-8")


@pytest.fixture
def load() -> Callable[..., Profile]:
    """Load the 32B profile with overrides."""

    def load_with(*overrides: str) -> Profile:
        return load_profile(PROFILE, overrides)

    return load_with


@pytest.fixture
def edit(tmp_path: Path, profile_text: str, monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Write a copy of the 32B profile in which lines are replaced, and stand beside it."""

    def edited(changes: dict[str, str]) -> Path:
        text = profile_text
        for old, new in changes.items():
            assert text.count(old) == 1, f"{old!r} must stand in the profile exactly once"
            text = text.replace(old, new)
        path = tmp_path / "tasks" / "qwen2.5vl-32b" / "profile.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return path

    return edited
