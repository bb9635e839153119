"""Versions as drivers, CANN and packages spell them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ascend_machine import Machine
from taskpack.launch.versions import (
    cann_version,
    driver_version,
    git_commit,
    package,
    parse_cann,
    parse_core,
    parse_driver,
    same_version,
    version_key,
)
from taskpack.profile.releases import load_release, release_names

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_versions_have_an_order() -> None:
    spelled = [
        "8.0.T6", "8.0.RC1", "8.0.RC3", "8.0.0", "8.2.RC1", "8.2.rc2", "8.5.0", "9.1.0-beta.1",
        "9.1.0", "25.2.RC1", "25.5.0",
    ]  # fmt: skip
    keys = [version_key(text) for text in spelled]
    assert None not in keys
    assert keys == sorted(key for key in keys if key)
    assert len(set(keys)) == len(keys)


def test_a_version_has_several_spellings() -> None:
    assert same_version("8.2.RC1", "8.2.rc1")
    assert same_version("2.7.1", "2.7.1+cpu")
    assert same_version("8.5", "8.5.0")
    assert not same_version("8.0.RC3", "8.0.0")
    assert not same_version("fa56dcc2a", "fa56dcc2a")


@pytest.mark.parametrize("name", release_names())
def test_what_a_release_names_can_be_compared(name: str) -> None:
    release = load_release(name)
    oldest = release.machine.cann_from or release.pins["cann"]
    least, pinned = version_key(oldest), version_key(release.pins["cann"])
    assert least and pinned and least <= pinned
    assert version_key(release.core) and version_key(release.pins["torch"])
    assert release.machine.driver is None or version_key(release.machine.driver)


def test_the_package_of_a_driver_is_its_version() -> None:
    text = "Version=7.3.0.1.231\nascendhal_version=7.35.23\npackage_version=24.1.rc3\n"
    assert parse_driver(text) == "24.1.rc3"
    assert parse_driver("Version=25.5.0\n") == "25.5.0"
    assert parse_driver("nothing") is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100R001\n", "8.2.RC1"),
        ("# version: 1.0\nruntime_running_version=[7.2.0.1.231:8.0.RC2]\n", "8.0.RC2"),
        ("toolkit_running_version=[7.8.0:8.3.RC1],[7.8.0:8.3.RC1]\n", "8.3.RC1"),
        ('Version="9.1.0-beta.1"\n', "9.1.0-beta.1"),
        ("version=\n", None),
        ("arch=aarch64\n", None),
        ("version=unknown\n", None),
    ],
)
def test_every_spelling_of_cann_is_read(text: str, version: str | None) -> None:
    assert parse_cann(text) == version


@pytest.mark.parametrize(
    "name",
    [
        "ascend_toolkit_install.info",
        "aarch64-linux/ascend_toolkit_install.info",
        "version.cfg",
        "runtime/version.info",
    ],
)
def test_cann_is_found_wherever_it_says_so(machine: Machine, name: str) -> None:
    path = machine.put(f"/usr/local/npu/cann/{name}", "Version=9.0.0\n")
    found = cann_version(machine.case().host, machine.case().ascend_folders("cann"))
    assert found == ("9.0.0", path)


def test_the_driver_is_where_the_installation_says(machine: Machine) -> None:
    machine.put(
        "/etc/ascend_install.info", "UserName=HwHiAiUser\nDriver_Install_Path_Param=/opt/d\n"
    )
    path = machine.put("/opt/d/driver/version.info", "package_version=25.2.RC1\n")
    machine.put("/usr/local/Ascend/driver/version.info", "package_version=24.1.rc3\n")
    case = machine.case()
    assert driver_version(case.host, case.ascend_folders("driver")) == ("25.2.RC1", path)


def test_megatron_core_is_read_without_importing_it() -> None:
    text = "MAJOR = 0\nMINOR = 12\nPATCH = 1\nPRE_RELEASE = ''\n"
    assert parse_core(text) == "0.12.1"
    assert parse_core("MAJOR = 0\n") is None


def test_a_package_tells_the_commit_of_its_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "my src"
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".git" / "HEAD").write_text(f"{COMMIT}\n", encoding="utf-8")
    info = tmp_path / "site" / "mindspeed-0.12.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mindspeed\nVersion: 0.12.1\n")
    url = {"url": (checkout).as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    found = package("no-such-name", "mindspeed")
    assert found is not None
    assert (found.version, found.commit) == ("0.12.1", COMMIT)


def test_a_commit_may_stand_behind_a_branch(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/26.1.0\n", encoding="utf-8")
    (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/26.1.0\n", encoding="utf-8")
    assert git_commit(tmp_path) == COMMIT
    (git / "refs" / "heads" / "26.1.0").write_text("f" * 40 + "\n", encoding="utf-8")
    assert git_commit(tmp_path) == "f" * 40
    assert git_commit(tmp_path / "nowhere") is None
