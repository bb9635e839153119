"""Versions of driver, CANN and Python packages against the release that the task is made for."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from taskpack.launch.case import Case
from taskpack.launch.checks.devices import device_ids
from taskpack.launch.line import Line, fail, ok, warn
from taskpack.launch.versions import (
    Package,
    cann_version,
    driver_version,
    package,
    parse_core,
    same_version,
    version_key,
)
from taskpack.profile.releases import Release

_INSTALL = "the versions of a release are in its install guide; activate that environment first"


def check_driver(case: Case) -> Iterator[Line]:
    """Compare the driver with the one that the release asks for."""
    found = driver_version(case.host, case.ascend_folders("driver"))
    if found is None:
        if device_ids(case):
            yield warn(
                "driver",
                "the driver's version is not to be seen",
                where=", ".join(case.ascend_folders("driver/version.info")),
                why="it cannot be compared with what CANN needs",
                fix="mount the host's driver/version.info into the container",
            )
        return
    version, path = found
    wanted = case.release.machine.driver if case.release else None
    have, need = version_key(version), version_key(wanted or "")
    if have and need and have < need:
        yield warn(
            "driver",
            f"driver {version} is older than {wanted}",
            where=str(path),
            why="newer CANN may call what an older driver lacks",
            fix=f"install driver and firmware {wanted} or later on the host",
        )
    else:
        yield ok("driver", version, where=str(path))


def check_cann(case: Case) -> Iterator[Line]:
    """Compare CANN with what the release works with."""
    release = case.release
    set_home = case.host.env.get("ASCEND_HOME_PATH") or case.host.env.get("ASCEND_TOOLKIT_HOME")
    homes = [set_home] if set_home else []
    homes += case.ascend_folders("cann", "ascend-toolkit/latest", "ascend-toolkit")
    found = cann_version(case.host, homes)
    if found is None:
        if device_ids(case) or release:
            yield fail(
                "CANN",
                "CANN is not installed here, or not where it usually is",
                where=", ".join(homes[:3]),
                why="torch_npu runs on it",
                fix="install CANN, or name its folder: ASCEND_PREFIX=/folder/of/Ascend",
            )
        return
    version, path = found
    if release is None or not version_key(version):
        yield ok("CANN", version, where=str(path))
    else:
        yield _judge_cann(version, str(path), release)


def _judge_cann(version: str, where: str, release: Release) -> Line:
    pinned, oldest = release.pins["cann"], release.machine.cann_from or release.pins["cann"]
    have, least, most = version_key(version), version_key(oldest), version_key(pinned)
    assert have and least and most  # both of the table are read by a test
    works = pinned if oldest == pinned else f"{oldest} to {pinned}"
    if have < least:
        return fail(
            "CANN",
            f"CANN {version} is older than MindSpeed-MM {release.name} works with: {works}",
            where=where,
            why="its operators are missing or behave otherwise",
            fix=f"install CANN {pinned}, toolkit, kernels and nnal alike",
        )
    if have > most:
        return warn(
            "CANN",
            f"CANN {version} is newer than {pinned}, with which MindSpeed-MM {release.name} works",
            where=where,
            why="the pair has not been tried by its authors",
            fix=f"use CANN {pinned} if operators fail",
        )
    return ok("CANN", f"{version} (MindSpeed-MM {release.name}: {works})", where=where)


def check_python(case: Case) -> Iterator[Line]:
    """Compare Python and the packages of this environment with the release's pins."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    release = case.release
    yield ok("python", own, where=sys.executable)
    torch, torch_npu = package("torch"), package("torch-npu", "torch_npu")
    yield from _pinned("torch", torch, release)
    yield from _torch_npu(torch, torch_npu, release)
    for name in ("transformers", "peft"):
        yield from _pinned(name, package(name), release)
    yield from _megatron(case)
    yield from _mindspeed(case)


def _missing(name: str, release: Release | None) -> Line:
    make = fail if release else warn
    return make(
        name,
        f"{name} is not installed in this environment",
        where=sys.prefix,
        why="the training imports it" if release else "a training could not run in it",
        fix=f"run doctor in the environment that trains, or install it; {_INSTALL}",
    )


def _pinned(name: str, found: Package | None, release: Release | None) -> Iterator[Line]:
    if found is None:
        yield _missing(name, release)
        return
    pin = release.pins[name] if release else ""
    least = version_key(pin.removeprefix(">=")) if pin.startswith(">=") else None
    have, need = version_key(found.version), version_key(pin.removeprefix(">="))
    if not have or not need:  # a pin may be a commit, to which no version can be compared
        yield ok(name, found.version + (f" (asked for: {pin})" if pin else ""))
    elif have == need or (least and have > least):
        yield ok(name, found.version)
    else:
        yield _other(name, found.version, pin, release, severe=have[:2] != need[:2])


def _other(name: str, have: str, pin: str, release: Release | None, *, severe: bool) -> Line:
    make = fail if severe else warn
    return make(
        name,
        f"{name} {have} is not {pin}",
        where=sys.prefix,
        why=f"MindSpeed-MM {release.name if release else ''} is written for {pin}, and names move "
        "between releases",
        fix=f"pip install '{name}{pin if pin.startswith('>') else '==' + pin}'",
    )


def _torch_npu(
    torch: Package | None, torch_npu: Package | None, release: Release | None
) -> Iterator[Line]:
    if torch_npu is None:
        yield _missing("torch_npu", release)
        return
    have = version_key(torch_npu.version)
    wheel = release.pins["torch_npu_wheel"] if release else None
    if torch and have and (need := version_key(torch.version)) and have[:3] != need[:3]:
        yield fail(
            "torch_npu",
            f"torch_npu {torch_npu.version} beside torch {torch.version}",
            where=sys.prefix,
            why="its libraries are built against one torch only",
            fix="install the torch_npu whose first three numbers are those of torch",
        )
    elif wheel and torch_npu.version.split("+")[0] != wheel:
        yield warn(
            "torch_npu",
            f"torch_npu {torch_npu.version} is not {wheel}",
            where=sys.prefix,
            why=f"MindSpeed-MM {release.name if release else ''} was published with {wheel}",
            fix=f"pip install --no-deps torch-npu=={wheel}",
        )
    else:
        yield ok("torch_npu", torch_npu.version)


def _megatron(case: Case) -> Iterator[Line]:
    release, checkout = case.release, case.checkout
    if release is None or checkout is None:
        return
    path = checkout / "megatron" / "core" / "package_info.py"
    text = case.host.read(path)
    version = parse_core(text) if text else None
    if version is None:
        installed = package("megatron-core", "megatron_core")
        version = installed.version if installed else None
    if version is None:
        yield fail(
            "megatron",
            "Megatron-LM is neither in the checkout nor installed",
            where=str(path),
            why="MindSpeed-MM trains on it",
            fix=f"copy the folder megatron of Megatron-LM {release.pins['megatron']} into "
            f"{checkout}",
        )
    elif same_version(version, release.core):
        yield ok("megatron", f"core {version}", where=str(path))
    else:
        yield fail(
            "megatron",
            f"Megatron core {version} is not {release.core}",
            where=str(path),
            why=f"MindSpeed-MM {release.name} patches the other one by name",
            fix=f"copy the folder megatron of Megatron-LM {release.pins['megatron']} into "
            f"{checkout}",
        )


def _mindspeed(case: Case) -> Iterator[Line]:
    found, release = package("mindspeed"), case.release
    if found is None:
        yield _missing("mindspeed", release)
        return
    shown = found.version + (f" at commit {found.commit[:8]}" if found.commit else "")
    if case.profile is None or release is None or found.commit is None:
        yield ok("mindspeed", shown)
        return
    pin = release.mindspeed[case.profile.family]
    if found.commit.startswith(pin):
        yield ok("mindspeed", shown)
    else:
        yield warn(
            "mindspeed",
            f"MindSpeed {shown} is not {pin}",
            where=sys.prefix,
            why=f"the guide of this model on MindSpeed-MM {release.name} names that commit; the "
            "commit belongs to the model, not to the branch",
            fix=f"git checkout {pin} in the folder that mindspeed was installed from",
        )
