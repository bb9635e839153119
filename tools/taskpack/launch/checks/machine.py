"""The host below the NPUs: environment scripts, memory, shared memory, disk, limits."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from taskpack.launch.case import Case
from taskpack.launch.checks.devices import device_ids
from taskpack.launch.line import Line, fail, ok, warn
from taskpack.plan.volumes import volumes

_GIB = 1 << 30
_RAM_PER_NPU = 4 * _GIB
"""A rule of thumb: what a process needs beside its NPU, and its loader workers."""

_SHM_DEFAULT = 64 << 20
"""What a container gets when nobody asks for more."""

_SHM_PER_NPU = 1 * _GIB
_FILES = 32768
"""What launchers of such runs commonly raise nofile to; each worker and each link takes some."""

_UNLIMITED = 1 << 60


def check_scripts(case: Case) -> Iterator[Line]:
    """Find the scripts of CANN and ATB that launchers source."""
    cann = _first_script(case, "cann", "ascend-toolkit")
    atb = _first_script(case, "nnal/atb")
    if cann is None:
        if device_ids(case) or case.profile:
            make = warn if case.host.env.get("ASCEND_HOME_PATH") else fail
            yield make(
                "env scripts",
                "there is no set_env.sh of CANN",
                where=", ".join(
                    case.ascend_folders("cann/set_env.sh", "ascend-toolkit/set_env.sh")
                ),
                why="it sets the paths to CANN's libraries; without them libhccl.so is not found",
                fix="install CANN, or name its folder: ASCEND_PREFIX=/folder/of/Ascend",
            )
        return
    yield ok("env scripts", cann)
    if atb is not None:
        yield ok("env scripts", atb)
    elif case.profile and case.profile.train.fused_gradients:
        yield fail(
            "env scripts",
            "CANN is installed without ATB",
            where=", ".join(case.ascend_folders("nnal/atb/set_env.sh")),
            why="train.fused_gradients adds gradients inside the matrix product, which takes ATB",
            fix="install CANN's nnal package, or set train.fused_gradients: false and render",
        )


def _first_script(case: Case, *folders: str) -> str | None:
    scripts = (f"{folder}/set_env.sh" for folder in case.ascend_folders(*folders))
    return next((script for script in scripts if case.host.path(script).is_file()), None)


def check_memory(case: Case) -> Iterator[Line]:
    """Compare free memory with what the processes of a node commonly take."""
    found = _available(case)
    if found is None:
        return
    free, where = found
    npus = case.npus or len(device_ids(case))
    if free < npus * _RAM_PER_NPU:
        yield warn(
            "memory",
            f"{_gib(free)} of memory are free for {npus} processes",
            where=where,
            why=f"as a rule of thumb each takes {_gib(_RAM_PER_NPU)} with its loader workers; the "
            "kernel kills one when memory runs out",
            fix="end other programs, raise the container's limit, or lower data.loader_workers and "
            "data.workers",
        )
    else:
        yield ok("memory", f"{_gib(free)} free", where=where)


def _available(case: Case) -> tuple[int, str] | None:
    """Give the smaller of what the machine and the container have left."""
    text = case.host.read("/proc/meminfo") or ""
    match = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    found = [(int(match[1]) * 1024, "/proc/meminfo")] if match else []
    group = "/sys/fs/cgroup"
    for most, used in (
        (f"{group}/memory.max", f"{group}/memory.current"),
        (f"{group}/memory/memory.limit_in_bytes", f"{group}/memory/memory.usage_in_bytes"),
    ):
        limit, taken = (_number(case.host.read(name)) for name in (most, used))
        if limit is not None and taken is not None and limit < _UNLIMITED:
            found.append((max(limit - taken, 0), most))
    return min(found) if found else None


def check_shm(case: Case) -> Iterator[Line]:
    """Look at /dev/shm, through which loader workers hand batches over."""
    folder = case.host.path("/dev/shm")
    if not folder.is_dir():
        return
    usage = shutil.disk_usage(folder)
    npus = max(case.npus or len(device_ids(case)), 1)
    if usage.total <= _SHM_DEFAULT:
        make = fail
    elif usage.free < npus * _SHM_PER_NPU:
        make = warn
    else:
        yield ok("shm", f"{_gib(usage.free)} free of {_gib(usage.total)}", where="/dev/shm")
        return
    yield make(
        "shm",
        f"{_gib(usage.free)} free of {_gib(usage.total)} for {npus} processes",
        where="/dev/shm",
        why="loader workers hand pictures over in it, and die of a bus error when it is full",
        fix="start the container with --ipc=host or with --shm-size; Kubernetes: an emptyDir of "
        "medium Memory on /dev/shm",
    )


def check_disk(case: Case) -> Iterator[Line]:
    """Compare the space of the save folder with what the run writes."""
    if case.profile is None or case.save_path is None:
        return
    folder, sizes = existing(case.save_path), volumes(case.profile)
    free = shutil.disk_usage(folder).free
    shown = f"{_gib(free)} free, a checkpoint takes {_gib(sizes.checkpoint)}"
    if not os.access(folder, os.W_OK | os.X_OK):
        yield fail(
            "disk",
            f"this user may not write into {folder}",
            where=str(case.save_path),
            why="checkpoints go there, the first hours after the start",
            fix="make the folder one that the training user may write to, or set SAVE_PATH",
        )
    elif free < sizes.checkpoint:
        yield fail(
            "disk",
            shown,
            where=str(folder),
            why="the first save would fail, hours after the start",
            fix="make room, or set SAVE_PATH to a folder with room",
        )
    elif free < sizes.run:
        yield warn(
            "disk",
            f"{shown}, all {sizes.saves} of the run {_gib(sizes.run)}",
            where=str(folder),
            why="nothing deletes older checkpoints",
            fix="make room, save less often (train.save_interval), or delete old ones as it runs",
        )
    else:
        yield ok("disk", f"{shown}, {sizes.saves} are written", where=str(folder))


def check_limits(_case: Case) -> Iterator[Line]:
    """Look at the number of files that a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        most = "no limit" if hard < 0 else f"{hard}"
        yield warn(
            "ulimit",
            f"a process may open {soft} files (may be raised to {most})",
            where="ulimit -n",
            why="links between ranks, loader workers and shards take one each",
            fix=f"ulimit -n {_FILES} before the start, or --ulimit nofile={_FILES} for a container",
        )
    else:
        yield ok("ulimit", f"a process may open {soft if soft >= 0 else 'any number of'} files")


def existing(path: Path) -> Path:
    """Give the folder, or the nearest one above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _number(text: str | None) -> int | None:
    bare = (text or "").strip()
    return int(bare) if bare.isascii() and bare.isdigit() else None


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
