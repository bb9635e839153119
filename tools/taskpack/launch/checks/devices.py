"""Device nodes and driver files, as the kernel or the container shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from taskpack.launch.case import Case
from taskpack.launch.line import Line, fail, ok, warn

_NAME = "devices"
_SHARED = ("davinci_manager", "devmm_svm", "hisi_hdc")
_LIBRARY = "libascend_hal.so"
_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def device_ids(case: Case) -> list[int]:
    """List the NPUs that have a device node; davinci_manager is none."""
    names = (path.name for path in case.host.path("/dev").glob("davinci[0-9]*"))
    return sorted(int(name[7:]) for name in names if name[7:].isdigit())


def check_devices(case: Case) -> Iterator[Line]:
    """Look at the nodes in /dev and at the libraries behind them."""
    ids = device_ids(case)
    if not ids:
        yield fail(
            _NAME,
            "this machine shows no NPU",
            where="/dev/davinci[0-9]*",
            why="training starts one process per NPU",
            fix="in a container: start it with --device for every /dev/davinciN; on the host: "
            "install driver and firmware, then restart it",
        )
        return
    yield _enough(case, ids)
    yield from _access(case, ids)
    yield from _visible(case, ids)
    yield from _driver_library(case)


def _enough(case: Case, ids: list[int]) -> Line:
    shown = f"{len(ids)} NPUs, /dev/davinci{ids[0]} to {ids[-1]}"
    if case.npus and len(ids) < case.npus:
        return fail(
            _NAME,
            f"{shown}; the run takes {case.npus} of each node",
            where="/dev/davinci*",
            why="torchrun starts one process per NPU; those without one end in an aclInit error",
            fix=f"give the container all NPUs, or set NPUS_PER_NODE={len(ids)} on every node if "
            "whole copies of the model still fit",
        )
    return ok(_NAME, shown)


def _access(case: Case, ids: list[int]) -> Iterator[Line]:
    dev = case.host.path("/dev")
    missing = [name for name in _SHARED if not (dev / name).exists()]
    if missing:
        yield fail(
            _NAME,
            f"/dev lacks {', '.join(missing)}",
            where="/dev",
            why="all NPUs are managed through these nodes",
            fix="add them to the container beside the NPUs",
        )
    nodes = [f"davinci{number}" for number in ids] + [*_SHARED]
    closed = [
        name
        for name in nodes
        if (dev / name).exists() and not os.access(dev / name, os.R_OK | os.W_OK)
    ]
    if closed:
        yield fail(
            _NAME,
            f"this user may not open {', '.join(closed[:4])}{' ...' if len(closed) > 4 else ''}",
            where="/dev",
            why="the nodes belong to the driver's user and its group",
            fix=f"become a member of that group: {_groups(case, closed[0])}",
        )


def _groups(case: Case, name: str) -> str:
    group = (case.host.path("/dev") / name).stat().st_gid
    return f"usermod -aG {group} USER on the host, --group-add {group} for a container"


def _visible(case: Case, ids: list[int]) -> Iterator[Line]:
    text = case.host.env.get(_VISIBLE)
    if text is None:
        return
    chosen = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in chosen):
        yield fail(
            _NAME,
            f"{_VISIBLE} is {text!r}",
            where="environment",
            why="it is a list of numbers, joined by commas; NPUs behind a wrong part are hidden",
            fix=f"unset {_VISIBLE}, or write it like 0,1,2,3",
        )
    elif case.npus and len(chosen) < case.npus:
        yield fail(
            _NAME,
            f"{_VISIBLE}={text} shows {len(chosen)} of {len(ids)} NPUs to the run, which takes "
            f"{case.npus}",
            where="environment",
            why="processes without an NPU end in an aclInit error",
            fix=f"unset {_VISIBLE}",
        )
    else:
        yield warn(
            _NAME,
            f"{_VISIBLE}={text} hides other NPUs",
            where="environment",
            why="the run sees these only",
            fix=f"unset {_VISIBLE} if all are meant",
        )


def _driver_library(case: Case) -> Iterator[Line]:
    folders = case.ascend_folders("driver/lib64")
    for folder in folders:
        if any(case.host.path(folder).glob(f"**/{_LIBRARY}")):
            yield ok("driver files", folder)
            return
    yield fail(
        "driver files",
        f"{_LIBRARY} is not there",
        where=", ".join(folders),
        why="CANN reaches the NPUs through the driver's libraries",
        fix="mount the host's driver folder read-only into the container, or install the driver",
    )
