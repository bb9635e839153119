"""The bytes of every rendered file, and how they differ from a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from taskpack.errors import CheckFailed
from taskpack.profile import Profile, load_release
from taskpack.render.context import HEADER_MARK, pack_header, task_context
from taskpack.render.engine import environment, templates_dir
from taskpack.render.generation import generation_files
from taskpack.render.json_files import FILES, finish_json

Files = Mapping[PurePosixPath, bytes]


def rendered_task(profile: Profile) -> Files:
    """Render every file of a task, by its path below the task folder.

    Raises:
        ProfileError: The release is not known, or lacks a flag that the profile asks for.
    """
    release = load_release(profile.release, where="the profile's release")
    context = task_context(profile, release)
    files = _render("task", context)
    files[PurePosixPath(profile.launcher)] = files.pop(PurePosixPath("finetune.sh"))
    for file, path in FILES.items():
        files[path] = finish_json(file, files[path].decode(), profile)
    for name, content in generation_files(profile, release):
        files[PurePosixPath(name)] = content
    for variant in _variants(profile):
        files |= _render(f"variants/{variant}", context)
    for source in _files_below(templates_dir() / "lib"):
        files[PurePosixPath("lib") / source] = (templates_dir() / "lib" / source).read_bytes()
    return files


def _variants(profile: Profile) -> list[str]:
    """Name the folders of templates that only some profiles need."""
    return ["fsdp2"] if profile.parallel.fsdp2 else []


def rendered_pack() -> Files:
    """Render the files that lie beside the tasks, by their path below `tasks/`."""
    return _render("pack", {"header": pack_header()})


def check_task(profile: Profile, folder: Path) -> list[CheckFailed]:
    """List the files of a task folder that are not what its profile renders to."""
    files = rendered_task(profile)
    return [*_differences(files, folder), *_extra(files, folder)]


def check_pack(root: Path) -> list[CheckFailed]:
    """List the files beside the tasks that are not what they render to."""
    return list(_differences(rendered_pack(), root))


def stale_files(files: Files, folder: Path) -> list[Path]:
    """List the files that an earlier render left behind, known by their header."""
    return [
        folder / path
        for path in _files_below(folder)
        if path not in files and HEADER_MARK.encode() in _head(folder / path)
    ]


def _render(group: str, context: dict[str, Any]) -> dict[PurePosixPath, bytes]:
    made = environment()
    names = [path for path in _files_below(templates_dir() / group) if path.suffix == ".j2"]
    return {
        path.with_suffix(""): made.get_template(f"{group}/{path}").render(context).encode()
        for path in names
    }


def _files_below(folder: Path) -> list[PurePosixPath]:
    # pip compiles the Python file among the libraries when it installs this package
    return sorted(
        PurePosixPath(path.relative_to(folder).as_posix())
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1024)


def _differences(files: Files, folder: Path) -> Iterator[CheckFailed]:
    for path, expected in files.items():
        target = folder / path
        if not target.is_file():
            yield _failure(f"{path} is missing", str(target), "it is rendered from the profile")
        elif (found := target.read_bytes()) != expected:
            line, wanted, given = _first_difference(expected, found)
            yield _failure(
                f"{path} is not what the profile renders to",
                f"{target}:{line}",
                f"expected {wanted}, found {given}",
            )


def _first_difference(expected: bytes, found: bytes) -> tuple[int, str, str]:
    pairs = zip_longest(expected.split(b"\n"), found.split(b"\n"))
    for line, (wanted, given) in enumerate(pairs, start=1):
        if wanted != given:
            return line, _quote(wanted), _quote(given)
    raise AssertionError("equal texts have no first difference")


def _quote(line: bytes | None) -> str:
    return "the end of the file" if line is None else repr(line.decode(errors="replace"))


def _extra(files: Files, folder: Path) -> Iterator[CheckFailed]:
    for path in stale_files(files, folder):
        yield _failure(
            f"{path.relative_to(folder)} is rendered no more", str(path), "no template makes it"
        )


def _failure(what: str, where: str, why: str) -> CheckFailed:
    return CheckFailed(
        what, where=where, why=why, fix="edit the profile instead, then run make render"
    )
