"""NPUs: device nodes, health, memory and who holds it, links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ascend_machine import Machine, a2_chip, idle, info_table
from taskpack.launch.case import Case
from taskpack.launch.checks.devices import check_devices
from taskpack.launch.checks.links import check_links
from taskpack.launch.checks.npus import check_npus
from taskpack.launch.host import Host
from taskpack.launch.line import Line

BUSY = [("1       0", "4242", "python", "36800")]


def statuses(check: Callable[[Case], Iterator[Line]], case: Case) -> list[tuple[str, str]]:
    return [(line.name, line.status) for line in check(case)]


def bad(check: Callable[[Case], Iterator[Line]], case: Case) -> Line:
    """The one line that is not ok; it says what, where, why and how to mend it."""
    (line,) = [line for line in check(case) if line.status != "ok"]
    assert line.what and line.where and line.why and line.fix
    return line


def test_a_machine_without_npus_is_said_to_have_none(machine: Machine) -> None:
    machine.put("/dev/davinci_manager")
    assert bad(check_devices, machine.case()).what == "this machine shows no NPU"


def test_a_machine_with_all_it_needs_has_no_fault(machine: Machine) -> None:
    case = machine.with_npus(8).case("qwen2.5vl-7b")
    assert {status for _, status in statuses(check_devices, case)} == {"ok"}
    assert {status for _, status in statuses(check_npus, case)} == {"ok"}


def test_fewer_npus_than_the_run_takes_are_a_fault(machine: Machine) -> None:
    machine.with_npus(4)
    line = bad(check_devices, machine.case("qwen2.5vl-7b"))
    assert line.what == "4 NPUs, /dev/davinci0 to 3; the run takes 8 of each node"
    assert "NPUS_PER_NODE=4" in line.fix
    case = machine.case("qwen2.5vl-7b", NPUS_PER_NODE="4")
    assert {status for _, status in statuses(check_devices, case)} == {"ok"}


def test_nodes_beside_the_npus_are_looked_for(machine: Machine) -> None:
    machine.with_npus(2)
    (machine.root / "dev" / "hisi_hdc").unlink()
    assert bad(check_devices, machine.case()).what == "/dev lacks hisi_hdc"


def test_nodes_that_may_not_be_opened_are_a_fault(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.with_npus(2)
    monkeypatch.setattr("os.access", lambda path, _mode: Path(path).name != "davinci1")
    line = bad(check_devices, machine.case())
    assert line.what == "this user may not open davinci1"
    assert "--group-add" in line.fix


@pytest.mark.parametrize(
    ("value", "status", "word"),
    [("0,1", "warn", "hides"), ("0,1,2,x", "fail", "list of numbers"), ("0", "fail", "1 of 2")],
)
def test_hidden_npus_are_named(machine: Machine, value: str, status: str, word: str) -> None:
    case = machine.with_npus(2).case(
        "qwen2.5vl-7b", ASCEND_RT_VISIBLE_DEVICES=value, NPUS_PER_NODE="2"
    )
    line = bad(check_devices, case)
    assert line.status == status
    assert word in line.what + line.why


def test_a_driver_under_the_other_prefix_is_found(machine: Machine) -> None:
    machine.with_npus(2, prefix="/usr/local/npu")
    assert {status for _, status in statuses(check_devices, machine.case())} == {"ok"}


def test_a_container_without_the_drivers_libraries_is_told_so(machine: Machine) -> None:
    machine.with_npus(2)
    library = "usr/local/Ascend/driver/lib64/driver/libascend_hal.so"
    (machine.root / library).unlink()
    assert bad(check_devices, machine.case()).what == "libascend_hal.so is not there"


def test_without_npu_smi_only_that_is_said(machine: Machine) -> None:
    case = Case(host=Host(root=machine.root, env={"PATH": str(machine.bin)}))
    assert (bad(check_npus, case).status, bad(check_npus, case).name) == ("warn", "npu-smi")


def test_a_process_on_an_npu_is_named_with_its_memory(machine: Machine) -> None:
    machine.with_npus(2)
    cards = [a2_chip(0), a2_chip(1, hbm="40123/ 65536")]
    machine.prints("npu-smi", info_table(cards, [idle(0), *BUSY]))
    line = bad(check_npus, machine.case())
    assert line.what == (
        "NPU 1 chip 0 (/dev/davinci1): 40123 of 65536 MB of HBM are taken by python (pid 4242, "
        "36800 MB)"
    )


def test_memory_that_nobody_seems_to_hold_is_held_outside(machine: Machine) -> None:
    machine.with_npus(2)
    cards = [a2_chip(0), a2_chip(1, hbm="40123/ 65536")]
    machine.prints("npu-smi", info_table(cards, [idle(0), idle(1)]))
    line = bad(check_npus, machine.case())
    assert "a process that this container does not see" in line.what
    assert "on the host" in line.fix


@pytest.mark.parametrize(
    ("health", "status"), [("Warning", "warn"), ("Alarm", "fail"), ("Critical", "fail")]
)
def test_a_sick_npu_is_named(machine: Machine, health: str, status: str) -> None:
    machine.with_npus(2)
    machine.prints("npu-smi", info_table([a2_chip(0), a2_chip(1, health)], [idle(0)]))
    line = bad(check_npus, machine.case())
    assert (line.status, line.what) == (
        status,
        f"NPU 1 chip 0 (/dev/davinci1) reports {health}",
    )


def test_an_npu_that_only_dev_knows_is_named(machine: Machine) -> None:
    machine.with_npus(2)
    machine.prints("npu-smi", info_table([a2_chip(0)], [idle(0)]))
    assert bad(check_npus, machine.case()).what == "npu-smi shows NPUs [0], /dev has [0, 1]"


def test_a_driver_that_cannot_be_reached_is_told_apart(machine: Machine) -> None:
    machine.prints("npu-smi", "dcmi module initialize failed. ret is -8005\n", code=1)
    line = bad(check_npus, machine.case())
    assert (line.status, "cannot reach the driver" in line.what) == ("fail", True)


def test_what_npu_smi_says_instead_of_a_table_is_shown(machine: Machine) -> None:
    machine.prints("npu-smi", "\n  驱动未加载\n", code=3)
    assert bad(check_npus, machine.case()).what == (
        "npu-smi info ended with 3 and no table of NPUs: 驱动未加载"
    )


def test_npu_smi_is_asked_in_the_c_locale(machine: Machine) -> None:
    machine.with_npus(2)
    table = (machine.bin.parent / "npu-smi.txt").read_text(encoding="utf-8")
    page = machine.put("/table.txt", table)
    machine.program(
        "npu-smi", f'[ "$LC_ALL" = C ] && cat "{page}" || echo "| 处理器 | 健康 | 功耗 |"'
    )
    case = machine.case(LC_ALL="zh_CN.UTF-8", LANG="zh_CN.UTF-8")
    assert {status for _, status in statuses(check_npus, case)} == {"ok"}


def test_an_npu_smi_that_hangs_is_left_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskpack.launch.checks.npus._SECONDS", 0.2)
    machine.program("npu-smi", "trap '' TERM; sleep 60 & sleep 60")
    line = bad(check_npus, machine.case())
    assert line.what == "npu-smi did not answer within 0 s"


@pytest.mark.parametrize(
    ("compatibility", "faulty", "status"), [("OK", 0, "ok"), ("NOK", 0, "fail"), ("OK", 1, "fail")]
)
def test_firmware_is_compared_with_the_driver(
    machine: Machine, compatibility: str, faulty: int, status: str
) -> None:
    machine.with_npus(1)
    board = machine.put(
        "/board.txt",
        "Software Version : 25.5.0\nFirmware Version : 7.8.0\n"
        f"Compatibility : {compatibility}\nFaulty Chip Count : {faulty}\n",
    )
    table = machine.bin.parent / "npu-smi.txt"
    machine.program("npu-smi", f'case "$*" in *board*) cat "{board}" ;; *) cat "{table}" ;; esac')
    assert ("firmware", status) in statuses(check_npus, machine.case())


HCCN = """
case "$3" in
  -link) echo "link status: {link}" ;;
  -net_health) echo "net health status: {health}" ;;
  -ip) {ip} ;;
  -tls) echo "dev_id:$2, tls switch[{tls}](0:disable, 1:enable), threshold[60]days" ;;
esac
"""
ADDRESS = "echo 'ipaddr:10.1.0.1'; echo 'netmask:255.255.255.0'"


def hccn(machine: Machine, *, link: str = "UP", health: str = "Success", ip: str = ADDRESS,
         tls: str = "0") -> None:  # fmt: skip
    machine.program("hccn_tool", HCCN.format(link=link, health=health, ip=ip, tls=tls))


def test_links_that_are_up_are_counted(machine: Machine) -> None:
    hccn(machine.with_npus(8))
    lines = list(check_links(machine.case(hosts=("a", "b"))))
    assert [(line.status, line.what) for line in lines] == [
        ("ok", "8 links up"),
        ("ok", "TLS switch 0 (must be the same on all nodes)"),
    ]


def test_a_link_that_is_down_stops_several_nodes_only(machine: Machine) -> None:
    hccn(machine.with_npus(2), link='$([ "$2" = 1 ] && echo DOWN || echo UP)')
    several, one = machine.case(hosts=("a", "b")), machine.case()
    assert bad(check_links, several).what == "the link of NPU 1 is down"
    assert (bad(check_links, several).status, bad(check_links, one).status) == ("fail", "warn")


def test_an_npu_without_an_address_stops_several_nodes(machine: Machine) -> None:
    hccn(machine.with_npus(1), ip="echo 'hccn_tool: command failed' >&2; exit 1")
    assert bad(check_links, machine.case(hosts=("a", "b"))).what == "NPU 0 has no address"
    assert "fail" not in [status for _, status in statuses(check_links, machine.case())]


def test_tls_must_be_alike(machine: Machine) -> None:
    hccn(machine.with_npus(2), tls="$2")
    assert "TLS switch differs" in bad(check_links, machine.case()).what


def test_a_port_that_does_not_reach_its_gateway_is_named(machine: Machine) -> None:
    hccn(machine.with_npus(1), health="Detect Ip Unreachable")
    assert bad(check_links, machine.case()).what == "net health of NPU 0: Detect Ip Unreachable"
    hccn(machine, health="Init")
    assert {status for _, status in statuses(check_links, machine.case())} == {"ok"}


def test_a_tool_that_says_nothing_is_no_proof(machine: Machine) -> None:
    machine.with_npus(1).program("hccn_tool", "echo 没有权限; exit 1")
    assert "says nothing about the link of NPU 0" in bad(check_links, machine.case()).what


def test_hccn_tool_is_found_beside_the_driver(machine: Machine) -> None:
    machine.with_npus(1)
    tool = machine.put(
        "/usr/local/Ascend/driver/tools/hccn_tool", '#!/bin/sh\necho "link status: UP"\n'
    )
    assert bad(check_links, machine.case(hosts=("a", "b"))).what != "1 links up"
    tool.chmod(0o755)
    assert "1 links up" in [line.what for line in check_links(machine.case(hosts=("a", "b")))]


def test_without_hccn_tool_only_several_nodes_are_told(machine: Machine) -> None:
    machine.with_npus(1)
    assert bad(check_links, machine.case(hosts=("a", "b"))).what == "hccn_tool is not here"
    assert list(check_links(machine.case())) == []
