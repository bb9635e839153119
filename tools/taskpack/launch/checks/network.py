"""The host's own network: interface, way to the master, ports, and variables that steer HCCL."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.launch.case import Case
from taskpack.launch.interfaces import (
    Interface,
    chosen_by_hccl,
    interfaces,
    listening_ports,
    resolve,
    source_address,
)
from taskpack.launch.line import Line, fail, ok, warn

_NAME = "network"
_PORTS = "ports"
_HCCL_BASE = 60000
_HCCL_PORTS = 32
"""Ports that HCCL takes from its base on; older CANN takes 16."""

_CONNECT_SECONDS = range(120, 7201)


def check_network(case: Case) -> Iterator[Line]:
    """Look at the way to the master and at the variables that choose interfaces."""
    own = interfaces(case.host)
    yield from _master(case, own)
    yield from _interface_names(case, own)
    yield from _own_address(case, own)
    yield from _leftovers(case)


def _master(case: Case, own: list[Interface]) -> Iterator[Line]:
    master = case.host.env.get("MASTER_ADDR") or (case.hosts[0] if case.hosts else None)
    if master is None:
        if case.nodes > 1:
            yield warn(
                _NAME,
                f"the run has {case.nodes} nodes, and the first of them is not known",
                where="MASTER_ADDR, --hosts",
                why="interface and way to it cannot be looked at",
                fix="doctor --hosts FIRST,SECOND,..., or set MASTER_ADDR",
            )
        return
    addresses = resolve(master)
    if not addresses:
        yield fail(
            _NAME,
            f"the name {master!r} has no address",
            where="MASTER_ADDR" if "MASTER_ADDR" in case.host.env else "--hosts",
            why="all ranks meet on the first node",
            fix="correct the name, add it to /etc/hosts, or write the address",
        )
        return
    source = source_address(addresses[0])
    used = next((item.name for item in own if source in item.addresses), None)
    shown = f"{master} is {addresses[0]}, reached from {source} on {used}"
    if source is None:
        yield fail(
            _NAME,
            f"there is no route to {master} ({addresses[0]})",
            where="routing table",
            why="all ranks meet on the first node",
            fix="check the network of this node or container; several nodes take the host's "
            "network (--net=host)",
        )
    elif case.nodes > 1 and addresses[0] in ("127.0.0.1", "127.0.1.1", "::1"):
        yield fail(
            _NAME,
            f"{master} means this machine itself: {addresses[0]}",
            where="MASTER_ADDR, /etc/hosts",
            why="other nodes would look for the master on themselves",
            fix="use the address that all nodes reach",
        )
    else:
        yield ok(_NAME, shown)


def _interface_names(case: Case, own: list[Interface]) -> Iterator[Line]:
    names, env = [item.name for item in own], case.host.env
    chosen: dict[str, list[str]] = {}
    for variable in ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = env.get(variable)
        if not value:
            continue
        exact = [value] if value in names else []
        chosen[variable] = chosen_by_hccl(value, names) if variable.startswith("HCCL") else exact
        if not chosen[variable]:
            yield fail(
                _NAME,
                f"{variable}={value} names no interface of this machine",
                where="environment",
                why="the ranks of this node could not open their sockets"
                + ("" if variable.startswith("HCCL") else "; this one takes a whole name only"),
                fix=f"use one of: {', '.join(names)}; or unset it",
            )
    firsts = {found[0] for found in chosen.values() if found}
    if len(firsts) > 1:
        yield warn(
            _NAME,
            "the variables choose different interfaces: "
            + ", ".join(f"{variable} {found[0]}" for variable, found in chosen.items() if found),
            where="environment",
            why="one of them may not reach the other nodes",
            fix="set all three to the interface that leads to the master",
        )


def _own_address(case: Case, own: list[Interface]) -> Iterator[Line]:
    value = case.host.env.get("HCCL_IF_IP")
    known = [address for item in own for address in item.addresses]
    if value and value not in known:
        yield fail(
            _NAME,
            f"HCCL_IF_IP={value} is no address of this machine",
            where="environment",
            why="it differs on every node, and one value for all nodes stops all but one",
            fix=f"unset it, or set it on each node by itself; here: {', '.join(known)}",
        )


def _leftovers(case: Case) -> Iterator[Line]:
    table = case.host.env.get("RANK_TABLE_FILE")
    if table:
        yield warn(
            _NAME,
            f"RANK_TABLE_FILE is set: {table}",
            where="environment",
            why="HCCL prefers a rank table to what torchrun says; an old one gives EI0004",
            fix="unset RANK_TABLE_FILE",
        )
    wait = case.host.env.get("HCCL_CONNECT_TIMEOUT")
    if wait and not (wait.isascii() and wait.isdigit() and int(wait) in _CONNECT_SECONDS):
        yield fail(
            _NAME,
            f"HCCL_CONNECT_TIMEOUT is {wait!r}",
            where="environment",
            why="HCCL takes whole seconds from 120 to 7200",
            fix="unset it; the launchers set 1200",
        )


def check_ports(case: Case) -> Iterator[Line]:
    """Look for programs that listen where the run will."""
    given = case.host.env.get("MASTER_PORT", "")
    base = case.host.env.get("HCCL_IF_BASE_PORT", "")
    master = int(given) if given.isdigit() else None
    if master is None and case.profile is not None:
        master = case.profile.platform.master_port
    first = int(base) if base.isdigit() else _HCCL_BASE
    wanted = {*range(first, first + _HCCL_PORTS), *([master] if master else [])}
    taken = sorted(wanted & listening_ports(case.host))
    if taken:
        yield fail(
            _PORTS,
            f"something listens on {', '.join(map(str, taken))} already",
            where="/proc/net/tcp",
            why="the first node's ranks meet on MASTER_PORT, HCCL opens "
            f"{first} to {first + _HCCL_PORTS - 1}",
            fix="stop the other run, or set MASTER_PORT or HCCL_IF_BASE_PORT alike on every node",
        )
    else:
        named = f"{master}, " if master else ""
        yield ok(_PORTS, f"{named}{first} to {first + _HCCL_PORTS - 1} are free")
    yield from _ephemeral(case, first)


def _ephemeral(case: Case, first: int) -> Iterator[Line]:
    """Warn where the kernel hands HCCL's ports to any outgoing connection."""
    bounds = (case.host.read("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    reserved = (case.host.read("/proc/sys/net/ipv4/ip_local_reserved_ports") or "").strip()
    last = first + _HCCL_PORTS - 1
    if case.nodes < 2 or len(bounds) != 2 or first > int(bounds[1]) or last < int(bounds[0]):
        return
    if not _covers(reserved, first, last):
        yield warn(
            _PORTS,
            f"any program's outgoing connection may take a port of {first} to {last}",
            where="net.ipv4.ip_local_port_range",
            why="HCCL then fails to bind, now and then",
            fix=f"sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last} on the host",
        )


def _covers(reserved: str, first: int, last: int) -> bool:
    ports: set[int] = set()
    for part in filter(None, reserved.split(",")):
        low, _, high = part.partition("-")
        ports.update(range(int(low), int(high or low) + 1))
    return ports.issuperset(range(first, last + 1))
