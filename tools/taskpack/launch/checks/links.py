"""The NPUs' own network ports, which carry traffic between nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from taskpack.launch.case import Case
from taskpack.launch.checks.devices import device_ids
from taskpack.launch.line import Line, fail, ok, warn

_NAME = "NPU links"
_SECONDS = 10.0
_LINK = re.compile(r"link status\s*:\s*(\S+)", re.IGNORECASE)
_HEALTH = re.compile(r"net health status\s*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_ADDRESS = re.compile(r"ipaddr\s*:\s*(\S+)", re.IGNORECASE)
_TLS = re.compile(r"tls switch\s*\[?\s*(\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Port:
    """What hccn_tool says about the port of one NPU; None where it said nothing."""

    device: int
    link: str | None
    health: str | None
    address: str | None
    tls: str | None


def parse_port(device: int, link: str, health: str, address: str, tls: str) -> Port:
    """Read the answers to `-link -g`, `-net_health -g`, `-ip -g` and `-tls -g`."""
    pairs = ((_LINK, link), (_HEALTH, health), (_ADDRESS, address), (_TLS, tls))
    found = [pattern.search(text) for pattern, text in pairs]
    values = [match[1] if match else None for match in found]
    return Port(device, *values)


def check_links(case: Case) -> Iterator[Line]:
    """Ask hccn_tool about every NPU of this machine."""
    ids = device_ids(case)
    if not ids:
        return
    tool = case.host.which("hccn_tool", *case.ascend_folders("driver/tools"))
    if tool is None:
        if case.nodes > 1:
            yield warn(
                _NAME,
                "hccn_tool is not here",
                where="PATH, " + ", ".join(case.ascend_folders("driver/tools")),
                why="the links between nodes cannot be looked at",
                fix="run doctor on the host, or mount its driver/tools and /etc/hccn.conf",
            )
        return
    with ThreadPoolExecutor(max_workers=8) as pool:
        ports = list(pool.map(lambda device: _ask(case, tool, device), ids))
    yield from judge_ports(ports, nodes=case.nodes)


def _ask(case: Case, tool: str, device: int) -> Port:
    answers = [
        case.host.run([tool, "-i", str(device), option, "-g"], seconds=_SECONDS).text
        for option in ("-link", "-net_health", "-ip", "-tls")
    ]
    return parse_port(device, *answers)


def judge_ports(ports: Sequence[Port], *, nodes: int) -> Iterator[Line]:
    """Say which ports would stop a run of so many nodes; one node does without them."""
    make = fail if nodes > 1 else warn
    down = [port.device for port in ports if port.link and port.link.upper() != "UP"]
    silent = [port.device for port in ports if port.link is None]
    if down:
        yield make(
            _NAME,
            f"the link of NPU {_list(down)} is down",
            where="hccn_tool -i N -link -g",
            why="its traffic to other nodes goes through this port",
            fix="check cable, optics and switch port of that NPU",
        )
    if silent:
        yield warn(
            _NAME,
            f"hccn_tool says nothing about the link of NPU {_list(silent)}",
            where="hccn_tool -i N -link -g",
            why="its state is not known",
            fix="run the command by hand, as root on the host",
        )
    if not down and not silent:
        yield ok(_NAME, f"{len(ports)} links up")
    yield from _addresses(ports, nodes)
    yield from _tls_and_health(ports)


def _addresses(ports: Sequence[Port], nodes: int) -> Iterator[Line]:
    bare = [port.device for port in ports if port.link is not None and port.address is None]
    if bare and nodes > 1:
        yield fail(
            _NAME,
            f"NPU {_list(bare)} has no address",
            where="hccn_tool -i N -ip -g",
            why="the NPUs of other nodes reach it by its address",
            fix="write addresses into /etc/hccn.conf: hccn_tool -i N -ip -s address A netmask M",
        )


def _tls_and_health(ports: Sequence[Port]) -> Iterator[Line]:
    switches = sorted({port.tls for port in ports if port.tls is not None})
    if len(switches) > 1:
        yield fail(
            _NAME,
            "the TLS switch differs between the NPUs of this node",
            where="hccn_tool -i N -tls -g",
            why="NPUs with another switch refuse to connect",
            fix="set it alike on every NPU of every node: hccn_tool -i N -tls -s enable 0",
        )
    elif switches:
        yield ok(_NAME, f"TLS switch {switches[0]} (must be the same on all nodes)")
    sick = [port for port in ports if port.health and not _is_healthy(port.health)]
    if sick:
        yield warn(
            _NAME,
            f"net health of NPU {_list([port.device for port in sick])}: {sick[0].health}",
            where="hccn_tool -i N -net_health -g",
            why="the port does not reach its detection address",
            fix="check gateway and detection address in /etc/hccn.conf",
        )


def _is_healthy(text: str) -> bool:
    # Init stands until the first probe, also on ports that work
    return text.lower() in ("success", "init")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
