"""Where tasks and templates are."""

from __future__ import annotations

from pathlib import Path

from taskpack.errors import ProfileError, nearest

PACKAGE_DIR = Path(__file__).resolve().parent


def tasks_root(start: Path | None = None) -> Path:
    """Find the nearest `tasks/` folder: here, in a folder above, or beside this package.

    Raises:
        ProfileError: There is none.
    """
    here = (start or Path.cwd()).resolve()
    candidates = [folder / "tasks" for folder in (here, *here.parents)]
    candidates.append(PACKAGE_DIR.parents[1] / "tasks")
    for candidate in candidates:
        if any(candidate.glob("*/profile.yaml")):
            return candidate
    raise ProfileError(
        "no tasks/ folder with a profile.yaml was found",
        where=str(here),
        why="a model is named by its folder in tasks/",
        fix="run inside a checkout that contains tasks/, or copy it there: cp -r tasks CHECKOUT/",
    )


def task_dir(model: str, start: Path | None = None) -> Path:
    """Find the task folder of a model by name.

    Raises:
        ProfileError: No folder of that name holds a profile.
    """
    root = tasks_root(start)
    if (root / model / "profile.yaml").is_file():
        return root / model
    known = sorted(profile.parent.name for profile in root.glob("*/profile.yaml"))
    raise ProfileError(
        f"no task is called {model!r}",
        where=str(root),
        why="a task is a folder of tasks/ that holds a profile.yaml",
        fix=nearest(model, known),
    )
