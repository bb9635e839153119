"""Network interfaces of this machine, and how the variables of HCCL choose among them."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from dataclasses import dataclass

from taskpack.launch.host import Host

_SIOCGIFADDR = 0x8915
_LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface and its addresses."""

    name: str
    addresses: tuple[str, ...]


def interfaces(host: Host) -> list[Interface]:
    """List the interfaces. Needs no program: containers often have none."""
    six = parse_if_inet6(host.read("/proc/net/if_inet6") or "")
    found = []
    for _, name in socket.if_nameindex():
        four = _ipv4(name)
        found.append(Interface(name, (*([four] if four else []), *six.get(name, ()))))
    return found


def parse_if_inet6(text: str) -> dict[str, tuple[str, ...]]:
    """Read /proc/net/if_inet6."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch(r"[0-9a-f]{32}", words[0]):
            address = str(ipaddress.IPv6Address(int(words[0], 16)))
            found[words[5]] = (*found.get(words[5], ()), address)
    return found


def parse_listening(text: str) -> set[int]:
    """Read the ports of /proc/net/tcp or tcp6 on which something listens."""
    ports = set()
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == _LISTENING:
            ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def listening_ports(host: Host) -> set[int]:
    """List the ports of this network namespace on which something listens."""
    names = ("/proc/net/tcp", "/proc/net/tcp6")
    return {port for name in names for port in parse_listening(host.read(name) or "")}


def chosen_by_hccl(value: str, names: list[str]) -> list[str]:
    """Select interfaces as HCCL_SOCKET_IFNAME does.

    A list of prefixes; `=` in front asks for whole names, `^` takes all but those.
    """
    text, negated = value.removeprefix("^"), value.startswith("^")
    exact, words = text.startswith("="), text.removeprefix("=").split(",")
    words = [word.strip() for word in words if word.strip()]
    hits = [
        name
        for name in names
        if any(name == word if exact else name.startswith(word) for word in words)
    ]
    return [name for name in names if name not in hits] if negated else hits


def source_address(address: str) -> str | None:
    """Give the own address from which packets to another would leave; sends none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def resolve(name: str) -> list[str]:
    """Look the addresses of a name up."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _ipv4(name: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(packed[20:24])
