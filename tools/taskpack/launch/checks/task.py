"""The files of a task on this machine: checkout, weights, rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskpack.launch.case import Case
from taskpack.launch.line import Line, Status, fail, ok
from taskpack.plan.findings import Check

_STATUS: Mapping[str, Status] = {"pass": "ok", "note": "warn", "fail": "fail", "open": "warn"}


def check_task(case: Case) -> Iterator[Line]:
    """Look at all that a start reads, from headers and names alone."""
    if case.profile is None or case.checkout is None or case.release is None:
        return
    yield from _checkout(case.checkout, case.release.entry)
    yield from _weights(case, case.checkout)
    yield from _rows(case, case.checkout)


def _checkout(checkout: Path, entry: str) -> Iterator[Line]:
    if not (checkout / entry).is_file():
        yield fail(
            "checkout",
            f"{checkout} is no MindSpeed-MM checkout",
            where=str(checkout / entry),
            why="launchers start MindSpeed-MM in the folder that contains tasks/",
            fix="copy tasks/ into the checkout, and name the task there: CHECKOUT/tasks/NAME",
        )
    else:
        yield ok("checkout", str(checkout))


def _weights(case: Case, checkout: Path) -> Iterator[Line]:
    # these read numpy, and a look at the machine alone does without
    from taskpack.plan.check_weights import check_hf, check_mm

    profile = case.profile
    if profile is None or case.load_path is None:
        return
    hf = checkout / profile.hf.dir
    if hf.is_dir():
        yield from map(_line, check_hf(profile, hf))
    else:
        yield _absent("HF folder", hf, f"bash {case.task}/download_weights.sh")
    if profile.hf.online:
        return
    if case.load_path.is_dir():
        yield from map(_line, check_mm(profile, case.load_path))
    else:
        yield _absent("MM folder", case.load_path, f"bash {case.task}/convert_hf_to_mm.sh")


def _rows(case: Case, checkout: Path) -> Iterator[Line]:
    data = case.profile.data if case.profile else None
    if data is None:
        return
    bad = [name for name in data.files if not os.access(checkout / name, os.R_OK)]
    empty = [name for name in data.files if name not in bad and _is_empty(checkout / name)]
    for names, fault in ((bad, "cannot be read"), (empty, "is empty")):
        for name in names:
            yield fail(
                "data",
                f"the data file {name} {fault}",
                where=f"data.files, seen from {checkout}",
                why="every node reads the rows itself",
                fix="put it there (taskpack data convert makes it), or change data.files",
            )
    if not (checkout / data.dir).is_dir() and data.media != "none":
        yield fail(
            "data",
            f"the folder {data.dir} does not exist",
            where=f"data.dir, seen from {checkout}",
            why="it is joined in front of every picture's path",
            fix="bring the pictures there, or change data.dir and render",
        )
    elif not bad and not empty:
        yield ok("data", f"{len(data.files)} of {len(data.files)} files are there (rows: "
                 "taskpack data check)")  # fmt: skip


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _absent(name: str, folder: Path, fix: str) -> Line:
    return fail(
        name,
        f"the folder {folder} does not exist",
        where=str(folder),
        why="the run starts from it",
        fix=fix,
    )


def _line(check: Check) -> Line:
    status = _STATUS[check.status]
    return Line(check.name, status, check.what, check.where, check.why, check.fix)
