"""The task that will train on the rows, and the checkout that it runs in."""

from __future__ import annotations

from pathlib import Path

from taskpack.profile import Profile, load_profile


def open_task(folder: Path) -> tuple[Profile, Path]:
    """Load the profile of a task folder.

    Returns:
        The profile, and the checkout: the folder that contains tasks/, where launchers start.

    Raises:
        ProfileError: The folder holds no valid profile.
    """
    return load_profile(folder / "profile.yaml"), folder.resolve().parent.parent
