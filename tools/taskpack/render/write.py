"""Writing rendered files: only those that change, each in one step."""

from __future__ import annotations

import os
from pathlib import Path

from taskpack.profile import Profile
from taskpack.render.files import Files, rendered_pack, rendered_task, stale_files


def render_task(profile: Profile, out: Path) -> list[Path]:
    """Render a task into a folder and remove what an earlier render left behind.

    Args:
        profile: The checked profile.
        out: The task folder; created when missing.

    Returns:
        The files that were written or removed.

    Raises:
        ProfileError: The release is not known, or lacks a flag that the profile asks for.
    """
    return _update(rendered_task(profile), out)


def render_pack(out: Path) -> list[Path]:
    """Render the files that lie beside the tasks.

    Args:
        out: The `tasks/` folder.

    Returns:
        The files that were written.
    """
    return _update(rendered_pack(), out, stale=False)


def _update(files: Files, out: Path, *, stale: bool = True) -> list[Path]:
    changed = [out / path for path, content in files.items() if _write(out / path, content)]
    for path in stale_files(files, out) if stale else ():
        path.unlink()
        changed.append(path)
    return changed


def _write(target: Path, content: bytes) -> bool:
    mode = 0o755 if target.suffix == ".sh" else 0o644
    if target.is_file() and target.read_bytes() == content:
        if target.stat().st_mode & 0o777 != mode:
            target.chmod(mode)
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(target)
    return True
