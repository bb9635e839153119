"""Interfaces, ways, ports; nodes that are asked over ssh."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from ascend_machine import Machine
from taskpack.launch.case import Case
from taskpack.launch.checks.network import check_network, check_ports
from taskpack.launch.checks.nodes import check_nodes
from taskpack.launch.interfaces import (
    Interface,
    chosen_by_hccl,
    interfaces,
    parse_if_inet6,
    parse_listening,
)
from taskpack.launch.line import Line

NAMES = ["docker0", "eth0", "eth1", "eth10", "lo"]
MODEL = "qwen2.5vl-7b"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("^eth", ["docker0", "lo"]),
        ("^=eth1", ["docker0", "eth0", "eth10", "lo"]),
        ("bond, docker", ["docker0"]),
        ("=bond0,lo", ["lo"]),
        ("ib", []),
    ],
)
def test_interfaces_are_chosen_as_hccl_does(value: str, names: list[str]) -> None:
    assert chosen_by_hccl(value, NAMES) == names


def test_addresses_of_the_kernel_are_read() -> None:
    text = (
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fe80000000000000021122fffe334455 02 40 20 80     eth0\n"
        "20010db8000000000000000000000007 02 40 00 80     eth0\n"
    )
    assert parse_if_inet6(text) == {
        "lo": ("::1",),
        "eth0": ("fe80::211:22ff:fe33:4455", "2001:db8::7"),
    }


def test_ports_that_are_listened_on_are_read() -> None:
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 00000000:1770 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:EA60 0100007F:1770 01 00000000:00000000\n"
        "   2: 00000000000000000000000000000000:EA61 0000:0000 0A 00000000:00000000\n"
    )
    assert parse_listening(text) == {6000, 60001}


def test_the_own_loopback_is_known(machine: Machine) -> None:
    assert Interface("lo", ("127.0.0.1",)) in interfaces(machine.case().host)


def bad(lines: Iterator[Line]) -> list[tuple[str, str]]:
    found = [line for line in lines if line.status != "ok"]
    assert all(line.where and line.why and line.fix for line in found)
    return [(line.status, line.what) for line in found]


def test_the_way_to_the_master_is_shown(machine: Machine) -> None:
    (line,) = check_network(machine.case(MASTER_ADDR="127.0.0.1"))
    assert (line.status, line.what) == (
        "ok",
        "127.0.0.1 is 127.0.0.1, reached from 127.0.0.1 on lo",
    )


def test_a_master_that_is_this_machine_for_everyone_is_a_fault(machine: Machine) -> None:
    (fault,) = bad(check_network(machine.case(NNODES="2", MASTER_ADDR="localhost")))
    assert fault[0] == "fail"
    assert fault[1].startswith("localhost means this machine itself")


def test_a_name_without_an_address_is_a_fault(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskpack.launch.checks.network.resolve", lambda _name: [])
    (fault,) = bad(check_network(machine.case(hosts=("node-0", "node-1"))))
    assert fault == ("fail", "the name 'node-0' has no address")


def test_several_nodes_without_a_master_are_asked_for(machine: Machine) -> None:
    (fault,) = bad(check_network(machine.case("qwen2.5vl-32b")))
    assert fault[0] == "warn"
    assert list(check_network(machine.case())) == []


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"HCCL_SOCKET_IFNAME": "nosuch"}, "HCCL_SOCKET_IFNAME=nosuch names no interface"),
        ({"GLOO_SOCKET_IFNAME": "l"}, "GLOO_SOCKET_IFNAME=l names no interface"),
        ({"TP_SOCKET_IFNAME": "=lo"}, "TP_SOCKET_IFNAME==lo names no interface"),
        ({"HCCL_IF_IP": "203.0.113.7"}, "HCCL_IF_IP=203.0.113.7 is no address"),
        ({"RANK_TABLE_FILE": "/user/config/jobstart_hccl.json"}, "RANK_TABLE_FILE is set"),
        ({"HCCL_CONNECT_TIMEOUT": "60"}, "HCCL_CONNECT_TIMEOUT is '60'"),
        ({"HCCL_CONNECT_TIMEOUT": "20m"}, "HCCL_CONNECT_TIMEOUT is '20m'"),
    ],
)
def test_variables_that_would_stop_a_run_are_named(
    machine: Machine, env: dict[str, str], word: str
) -> None:
    (fault,) = bad(check_network(machine.case(**env)))
    assert word in fault[1]


def test_variables_that_fit_are_no_fault(machine: Machine) -> None:
    case = machine.case(
        HCCL_SOCKET_IFNAME="l", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo",
        HCCL_IF_IP="127.0.0.1", HCCL_CONNECT_TIMEOUT="1200",
    )  # fmt: skip
    assert bad(check_network(case)) == []


def listen_table(*ports: int) -> str:
    rows = [f"   0: 00000000:{port:04X} 00000000:0000 0A 0:0" for port in ports]
    return "\n".join(["  sl  local_address", *rows])


def test_a_port_that_is_taken_is_named(machine: Machine) -> None:
    machine.put("/proc/net/tcp", listen_table(22, 29501, 60031))
    (fault,) = bad(check_ports(machine.case(MODEL)))
    assert fault == ("fail", "something listens on 29501, 60031 already")
    moved = machine.case(MODEL, MASTER_PORT="29600", HCCL_IF_BASE_PORT="61000")
    assert bad(check_ports(moved)) == []


def test_ports_of_outgoing_connections_are_to_be_reserved(machine: Machine) -> None:
    machine.put("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    machine.put("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n")
    case = machine.case(hosts=("a", "b"))
    assert [status for status, _ in bad(check_ports(case))] == ["warn"]
    machine.put("/proc/sys/net/ipv4/ip_local_reserved_ports", "50000,60000-60031\n")
    assert bad(check_ports(case)) == []


SSH = """
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
case "$host" in
  gone) echo "ssh: connect to host gone port 22: Connection refused" >&2; exit 255 ;;
  hangs) sleep 60 ;;
  late) date() { echo 1000000000.5; }; . /dev/stdin ;;
  odd) sed 's/taskpack:npus=.*npus"/taskpack:npus=7"/' | sh ;;
  blind) sed 's/taskpack:token=.*"/taskpack:token="/' | sh ;;
  cut) sed 's/taskpack:reached=yes/taskpack:reached=no/' | sh ;;
  *) echo "Welcome to $host"; exec "$@" ;;
esac
"""


@pytest.fixture
def cluster(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This machine is `master`; the others are reached by a stand-in of ssh."""
    machine.program("ssh", SSH)
    monkeypatch.setattr(
        "taskpack.launch.checks.nodes.is_this_machine", lambda _case, name: name == "master"
    )
    return machine


def nodes(machine: Machine, *hosts: str, model: str | None = None, **env: str) -> list[Line]:
    # no machine of a test has 8 NPUs in its real /dev
    return list(check_nodes(machine.case(model, hosts=hosts, **env)))


def named(lines: list[Line], name: str) -> list[tuple[str, str]]:
    return [(line.status, line.what) for line in lines if line.name == name]


def test_nodes_that_answer_are_counted_and_compared(cluster: Machine) -> None:
    lines = nodes(cluster, "master", "node-1", "node-2")
    assert named(lines, "nodes") == [("ok", "3 of 3 nodes answer")]
    assert named(lines, "clocks") == [("ok", "within 2 s of each other")]


def test_a_node_that_cannot_be_asked_is_named_with_what_ssh_says(cluster: Machine) -> None:
    assert named(nodes(cluster, "master", "gone"), "nodes") == [
        ("fail", "gone cannot be asked: ssh: connect to host gone port 22: Connection refused"),
        ("ok", "1 of 2 nodes answer"),
    ]


def test_a_node_that_hangs_does_not_hold_the_doctor(
    cluster: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskpack.launch.checks.nodes._SECONDS", 0.5)
    assert ("fail", "hangs cannot be asked: no answer") in named(
        nodes(cluster, "master", "hangs"), "nodes"
    )


def test_a_clock_that_is_off_is_named(cluster: Machine) -> None:
    ((status, what),) = named(nodes(cluster, "master", "late"), "clocks")
    assert status == "warn"
    assert what.startswith("late is -")


def test_a_node_with_other_npus_is_named(cluster: Machine) -> None:
    faults = [what for status, what in named(nodes(cluster, "master", "odd"), "nodes")
              if status == "fail"]  # fmt: skip
    assert faults == ["NPUs differ: master 0, odd 7"]


def test_a_folder_that_all_see_is_shared_and_left_clean(cluster: Machine) -> None:
    lines = nodes(cluster, "master", "node-1", model=MODEL)
    folder = cluster.root / "checkout"
    assert named(lines, "shared folder") == [("ok", f"all 2 nodes see {folder}")]
    assert [path.name for path in folder.iterdir()] == ["tasks"]


def test_a_folder_of_its_own_on_every_node_is_said_so(cluster: Machine) -> None:
    ((status, what),) = named(nodes(cluster, "master", "blind", model=MODEL), "shared folder")
    assert (status, "each node's own" in what) == ("ok", True)


def test_a_folder_that_one_node_lacks_is_a_fault(cluster: Machine) -> None:
    lines = nodes(cluster, "master", "node-1", "blind", model=MODEL)
    ((status, what),) = named(lines, "shared folder")
    assert status == "fail"
    assert what.startswith("blind does not see")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_masters_port_is_tried_from_every_node(
    cluster: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "taskpack.launch.checks.nodes.is_this_machine", lambda _case, name: name == "127.0.0.1"
    )
    port = free_port()
    lines = nodes(cluster, "127.0.0.1", "node-1", MASTER_PORT=port)
    assert named(lines, "master port") == [("ok", f"127.0.0.1 port {port} is reached")]
    lines = nodes(cluster, "127.0.0.1", "cut", MASTER_PORT=port)
    assert named(lines, "master port") == [("fail", f"cut cannot reach 127.0.0.1 port {port}")]


def test_one_machine_asks_nobody(machine: Machine) -> None:
    assert list(check_nodes(machine.case())) == []


def test_this_machine_is_known_by_name_and_address(machine: Machine) -> None:
    from taskpack.launch.checks.nodes import is_this_machine

    case: Case = machine.case()
    assert is_this_machine(case, "127.0.0.1")
    assert is_this_machine(case, socket.gethostname())
    assert not is_this_machine(case, "203.0.113.9")
