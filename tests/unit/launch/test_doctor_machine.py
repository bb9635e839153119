"""Memory, shared memory, disk, limits, scripts, files of the task."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ascend_machine import Machine
from taskpack.launch.case import Case
from taskpack.launch.checks import machine as host_checks
from taskpack.launch.checks.task import check_task
from taskpack.launch.line import Line

GIB = 1 << 30
MODEL = "qwen2.5vl-7b"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def only(check: Callable[[Case], Iterator[Line]], case: Case) -> Line:
    (line,) = check(case)
    assert line.status == "ok" or (line.where and line.why and line.fix)
    return line


def meminfo(machine: Machine, available_kb: int) -> None:
    machine.put("/proc/meminfo", f"MemTotal:  999999999 kB\nMemAvailable:  {available_kb} kB\n")


def test_memory_is_what_machine_and_container_leave(machine: Machine) -> None:
    meminfo(machine, 100 * GIB // 1024)
    assert only(host_checks.check_memory, machine.case(MODEL)).status == "ok"
    machine.put("/sys/fs/cgroup/memory.max", f"{20 * GIB}\n")
    machine.put("/sys/fs/cgroup/memory.current", f"{5 * GIB}\n")
    line = only(host_checks.check_memory, machine.case(MODEL))
    assert (line.status, line.what) == ("warn", "15.0 GiB of memory are free for 8 processes")
    assert line.where == "/sys/fs/cgroup/memory.max"


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n"])
def test_a_group_without_a_limit_limits_nothing(machine: Machine, limit: str) -> None:
    meminfo(machine, 100 * GIB // 1024)
    machine.put("/sys/fs/cgroup/memory.max", limit)
    machine.put("/sys/fs/cgroup/memory.current", f"{99 * GIB}\n")
    assert only(host_checks.check_memory, machine.case(MODEL)).what == "100.0 GiB free"


@pytest.mark.parametrize(
    ("total", "free", "status"),
    [(64 << 20, 64 << 20, "fail"), (100 * GIB, GIB, "warn"), (100 * GIB, 90 * GIB, "ok")],
)
def test_shared_memory_of_a_container_is_often_too_small(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, total: int, free: int, status: str
) -> None:
    (machine.root / "dev" / "shm").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(total, total - free, free))
    assert only(host_checks.check_shm, machine.case(MODEL)).status == status


@pytest.mark.parametrize(
    ("free", "status"), [(10 * GIB, "fail"), (20 * GIB, "warn"), (99 * GIB, "ok")]
)
def test_the_disk_must_hold_the_checkpoints_of_the_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(999 * GIB, 0, free))
    line = only(host_checks.check_disk, machine.case(MODEL))
    assert (line.status, "a checkpoint takes 15.4 GiB" in line.what) == (status, True)


def test_the_save_folder_may_be_set_and_must_be_writable(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put("/big/some.file")
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    line = only(host_checks.check_disk, machine.case(MODEL, SAVE_PATH=f"{machine.root}/big/run1"))
    assert (line.status, line.what) == ("fail", f"this user may not write into {machine.root}/big")


@pytest.mark.parametrize(
    ("soft", "hard", "status"),
    [(1024, 4096, "warn"), (65536, 65536, "ok"), (resource.RLIM_INFINITY, -1, "ok")],
)
def test_few_open_files_are_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, status: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (soft, hard))
    assert only(host_checks.check_limits, machine.case()).status == status


def test_scripts_are_found_under_any_prefix(machine: Machine) -> None:
    machine.with_npus(1, prefix="/usr/local/npu")
    lines = list(host_checks.check_scripts(machine.case(MODEL)))
    assert [(line.status, line.what) for line in lines] == [
        ("ok", "/usr/local/npu/cann/set_env.sh"),
        ("ok", "/usr/local/npu/nnal/atb/set_env.sh"),
    ]


def test_the_older_folder_of_cann_is_found_too(machine: Machine) -> None:
    machine.put("/opt/x/ascend-toolkit/set_env.sh")
    first = next(host_checks.check_scripts(machine.case(ASCEND_PREFIX="/opt/x")))
    assert (first.status, first.what) == ("ok", "/opt/x/ascend-toolkit/set_env.sh")


def test_fused_gradients_need_atb(machine: Machine) -> None:
    machine.put("/usr/local/Ascend/cann/set_env.sh")
    lines = list(host_checks.check_scripts(machine.case(MODEL)))
    assert [line.what for line in lines if line.status == "fail"] == [
        "CANN is installed without ATB"
    ]
    assert [line.status for line in host_checks.check_scripts(machine.case())] == ["ok"]


def test_a_task_without_cann_is_a_fault(machine: Machine) -> None:
    assert only(host_checks.check_scripts, machine.case(MODEL)).status == "fail"
    assert list(host_checks.check_scripts(machine.case())) == []


def task_lines(machine: Machine, **env: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in check_task(machine.case(MODEL, **env)):
        found.setdefault(line.status, []).append(f"{line.name}: {line.what}")
        assert line.status == "ok" or line.fix
    return found


def test_everything_that_a_start_reads_is_looked_for(machine: Machine) -> None:
    faults = task_lines(machine)["fail"]
    assert [fault.split(":")[0] for fault in faults] == [
        "checkout", "HF folder", "MM folder", "data", "data",
    ]  # fmt: skip
    assert task_lines(machine).get("ok") is None


def test_files_that_are_there_are_no_fault(machine: Machine) -> None:
    machine.put("/checkout/pretrain_vlm.py")
    rows = machine.put("/checkout/data/mllm_format_llava_instruct_data.json", "[]")
    found = task_lines(machine)
    assert found["ok"] == [
        f"checkout: {machine.root / 'checkout'}",
        "data: 1 of 1 files are there (rows: taskpack data check)",
    ]
    rows.write_text("")
    assert (
        "data: the data file ./data/mllm_format_llava_instruct_data.json is empty"
        in (task_lines(machine)["fail"])
    )


def test_weights_of_another_kind_are_a_fault(machine: Machine) -> None:
    machine.put("/elsewhere/model-00001-of-00002.safetensors", "x")
    faults = task_lines(machine, LOAD_PATH=str(machine.root / "elsewhere"))["fail"]
    (fault,) = [fault for fault in faults if "elsewhere" in fault or "MM folder" in fault]
    assert fault.startswith("MM folder: ")


def test_a_folder_is_looked_for_upwards(tmp_path: Path) -> None:
    assert host_checks.existing(tmp_path / "a" / "b" / "c") == tmp_path
