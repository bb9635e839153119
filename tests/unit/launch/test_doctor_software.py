"""Versions against the release of the task."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ascend_machine import Machine
from taskpack.launch.checks.software import check_cann, check_driver, check_python
from taskpack.launch.line import Line

FITTING = {
    "torch": "2.7.1",
    "torch-npu": "2.7.1.post8",
    "transformers": "4.57.0",
    "peft": "0.19.1",
    "mindspeed": "0.12.1",
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of this Python's packages."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    return site


def install(site: Path, **versions: str) -> None:
    for name, version in (FITTING | {k.replace("_", "-"): v for k, v in versions.items()}).items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def python_lines(machine: Machine, model: str | None = "qwen2.5vl-7b") -> dict[str, Line]:
    machine.put("/checkout/megatron/core/package_info.py", "MAJOR = 0\nMINOR = 12\nPATCH = 1\n")
    return {line.name: line for line in check_python(machine.case(model))}


def test_an_environment_of_the_release_has_no_fault(machine: Machine, packages: Path) -> None:
    install(packages)
    lines = python_lines(machine)
    assert {name: line.status for name, line in lines.items() if line.status != "ok"} == {}
    assert set(lines) == {
        "python", "torch", "torch_npu", "transformers", "peft", "megatron", "mindspeed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("torch", "2.7.1+cpu", "ok"),
        ("transformers", "4.57.3", "warn"),
        ("transformers", "5.24.0", "fail"),
        ("peft", "0.7.1", "fail"),
        ("peft", "0.21.0", "ok"),
        ("torch_npu", "2.7.1.post4", "warn"),
        ("torch_npu", "2.6.0", "fail"),
    ],
)
def test_a_package_of_another_version_is_named(
    machine: Machine, packages: Path, name: str, version: str, status: str
) -> None:
    install(packages, **{name: version})
    line = python_lines(machine)[name]
    assert line.status == status
    assert version in line.what
    assert status == "ok" or (line.why and line.fix)


def test_what_is_missing_is_a_fault_for_a_task_only(machine: Machine, packages: Path) -> None:
    assert packages.is_dir()
    for model, status in (("qwen2.5vl-7b", "fail"), (None, "warn")):
        lines = python_lines(machine, model)
        assert {lines[name].status for name in ("torch", "torch_npu", "mindspeed")} == {status}


def test_another_megatron_is_a_fault(machine: Machine, packages: Path) -> None:
    install(packages)
    machine.put("/checkout/megatron/core/package_info.py", "MAJOR = 0\nMINOR = 8\nPATCH = 0\n")
    (line,) = [
        line for line in check_python(machine.case("qwen2.5vl-7b")) if line.name == "megatron"
    ]
    assert (line.status, line.what) == ("fail", "Megatron core 0.8.0 is not 0.12.1")
    assert "core_v0.12.1" in line.fix


def test_mindspeed_is_compared_by_its_commit(machine: Machine, packages: Path) -> None:
    install(packages)
    source = machine.root / "src" / "MindSpeed"
    (source / ".git").mkdir(parents=True)
    (packages / "mindspeed-0.12.1.dist-info" / "direct_url.json").write_text(
        f'{{"dir_info": {{"editable": true}}, "url": "{source.as_uri()}"}}', encoding="utf-8"
    )
    for commit, status in (("69f41000" + "0" * 32, "ok"), ("5176c6f5" + "0" * 32, "warn")):
        (source / ".git" / "HEAD").write_text(commit, encoding="utf-8")
        line = python_lines(machine)["mindspeed"]
        assert (line.status, commit[:8] in line.what) == (status, True)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("9.1.0", "ok"),
        ("8.5.0", "ok"),
        ("9.1.0-beta.1", "ok"),
        ("8.2.RC1", "fail"),
        ("9.2.0", "warn"),
    ],
)
def test_cann_is_compared_with_what_the_release_works_with(
    machine: Machine, version: str, status: str
) -> None:
    machine.with_npus(8)
    info = "/usr/local/Ascend/cann/aarch64-linux/ascend_toolkit_install.info"
    path = machine.put(info, f"version={version}\n")
    (line,) = check_cann(machine.case("qwen2.5vl-7b"))
    assert (line.status, line.where) == (status, str(path))
    assert version in line.what


def test_the_cann_that_is_sourced_counts(machine: Machine) -> None:
    machine.with_npus(8).put("/opt/cann/version.cfg", "runtime_running_version=[7.1:8.0.RC2]\n")
    (line,) = check_cann(machine.case("qwen2.5vl-7b", ASCEND_HOME_PATH="/opt/cann"))
    assert line.status == "fail"
    assert line.what.startswith("CANN 8.0.RC2 is older")


def test_no_cann_is_a_fault_where_npus_are(machine: Machine) -> None:
    assert list(check_cann(machine.case())) == []
    machine.put("/dev/davinci0")
    (line,) = check_cann(machine.case())
    assert (line.status, "ASCEND_PREFIX" in line.fix) == ("fail", True)


@pytest.mark.parametrize(("version", "status"), [("25.5.0", "ok"), ("24.1.rc3", "warn")])
def test_an_older_driver_is_named(machine: Machine, version: str, status: str) -> None:
    machine.with_npus(8)
    machine.put("/usr/local/Ascend/driver/version.info", f"package_version={version}\n")
    case = machine.case("qwen2.5vl-7b")
    assert case.profile is not None
    older = type(case)(
        host=case.host, profile=case.profile.model_copy(update={"release": "2.3.0"}), task=case.task
    )
    (line,) = check_driver(older)
    assert (line.status, version in line.what) == (status, True)
