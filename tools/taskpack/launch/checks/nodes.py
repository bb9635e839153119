"""All nodes of a run, asked over ssh: clocks, NPUs, drivers, a shared folder, the master's port."""

from __future__ import annotations

import re
import secrets
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from taskpack.launch.case import Case
from taskpack.launch.checks.machine import existing
from taskpack.launch.interfaces import interfaces, resolve
from taskpack.launch.line import Line, fail, ok, warn

_NAME = "nodes"
_CONNECT_SECONDS = 5
_SECONDS = 30.0
_SKEW_SECONDS = 2.0
"""Clocks further apart make the order of events in logs of several nodes a guess."""

_SSH = (
    "ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}",
    "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2",
)  # fmt: skip
_ANSWER = re.compile(r"^taskpack:(\w+)=(.*?)\s*$", re.MULTILINE)

# Runs in any POSIX shell; bash is only needed for the connection, and its absence says nothing.
_SCRIPT = """
echo "taskpack:time=$(date +%s.%N)"
npus=0
for device in /dev/davinci[0-9]*; do
  if [ -e "$device" ]; then npus=$((npus + 1)); fi
done
echo "taskpack:npus=$npus"
echo "taskpack:driver=$(cat {drivers} 2>/dev/null | sed -n 's/^package_version=//p' | head -n 1)"
echo "taskpack:token=$(cat {probe} 2>/dev/null)"
if ! command -v bash >/dev/null || ! command -v timeout >/dev/null; then
  echo "taskpack:reached=unknown"
elif timeout 5 bash -c ': <"/dev/tcp/$0/$1"' {address} {port} 2>/dev/null; then
  echo "taskpack:reached=yes"
else
  echo "taskpack:reached=no"
fi
echo "taskpack:end=1"
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one node said."""

    host: str
    local: bool
    """True for this machine, which is asked without ssh."""

    values: dict[str, str]
    """Empty when it could not be asked."""

    text: str
    skew: float | None
    """Seconds that its clock is ahead of ours."""

    slack: float
    """Seconds by which the skew may be wrong: half of the time that asking took."""


def check_nodes(case: Case) -> Iterator[Line]:
    """Ask every node at once and compare the answers."""
    if not case.hosts:
        return
    with _probe_file(case) as probe, _master_port(case) as port:
        script = _script(case, probe, port)
        with ThreadPoolExecutor(max_workers=16) as pool:
            answers = list(pool.map(lambda host: _ask(case, host, script), case.hosts))
    yield from _reachable(answers)
    heard = [answer for answer in answers if "end" in answer.values]
    yield from _clocks(heard)
    yield from _alike(case, heard)
    if probe is not None:
        yield _shared(heard, probe[0].parent, probe[1])
    if port is not None:
        yield from _master_reached(heard, case.hosts[0], port)


def is_this_machine(case: Case, name: str) -> bool:
    """Tell whether a host name or address is one of our own."""
    own = {address for item in interfaces(case.host) for address in item.addresses}
    return name == socket.gethostname() or not own.isdisjoint(resolve(name))


def _script(case: Case, probe: tuple[Path, str] | None, port: int | None) -> str:
    drivers = case.ascend_folders("driver/version.info")
    values = {
        "drivers": " ".join(map(shlex.quote, drivers)),
        "probe": shlex.quote(str(probe[0])) if probe else "/dev/null",
        "address": shlex.quote(case.hosts[0]),
        "port": str(port or 9),
    }
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _ask(case: Case, host: str, script: str) -> Answer:
    local = is_this_machine(case, host)
    words = ["sh", "-s"] if local else [*_SSH, host, "sh", "-s"]
    start = time.time()
    ran = case.host.run(words, seconds=_SECONDS, stdin=script)
    slack = (time.time() - start) / 2
    values = dict(_ANSWER.findall(ran.text))
    number = re.match(r"\d+(\.\d+)?", values.get("time", ""))
    skew = float(number[0]) - (start + slack) if number else None
    return Answer(host, local, values, ran.text, skew, slack)


def _reachable(answers: Sequence[Answer]) -> Iterator[Line]:
    for answer in answers:
        if "end" not in answer.values:
            said = [line.strip() for line in answer.text.splitlines() if line.strip()]
            yield fail(
                _NAME,
                f"{answer.host} cannot be asked: {said[-1][:200] if said else 'no answer'}",
                where=f"ssh {answer.host}",
                why="nodes are compared over ssh, without a password",
                fix="make `ssh -o BatchMode=yes HOST true` work, or run doctor on each node",
            )
    heard = sum("end" in answer.values for answer in answers)
    if heard:
        yield ok(_NAME, f"{heard} of {len(answers)} nodes answer")


def _clocks(heard: Sequence[Answer]) -> Iterator[Line]:
    away = {
        answer.host: answer.skew
        for answer in heard
        if answer.skew is not None and abs(answer.skew) > _SKEW_SECONDS + answer.slack
    }
    if away:
        yield warn(
            "clocks",
            ", ".join(f"{host} is {skew:+.0f} s off" for host, skew in away.items()),
            where="date on each node, against this one",
            why="logs of the nodes cannot be put into one order, and shared files seem to come "
            "from the future",
            fix="switch time synchronisation on (chronyd or ntpd) on every node",
        )
    elif heard:
        yield ok("clocks", f"within {_SKEW_SECONDS:.0f} s of each other")


def _alike(case: Case, heard: Sequence[Answer]) -> Iterator[Line]:
    for key, noun in (("npus", "NPUs"), ("driver", "driver")):
        found = {answer.host: answer.values.get(key, "") for answer in heard}
        kinds = {value for value in found.values() if value}
        if len(kinds) > 1:
            yield fail(
                _NAME,
                f"{noun} differ: " + ", ".join(f"{host} {value}" for host, value in found.items()),
                where="each node",
                why="every node starts the same number of processes on the same software",
                fix="give every node the same, or leave the odd one out",
            )
    wanted = case.npus
    few = [answer.host for answer in heard if wanted and _number(answer, "npus") < wanted]
    if few:
        yield fail(
            _NAME,
            f"fewer than {wanted} NPUs on {', '.join(few)}",
            where="/dev/davinci* on each node",
            why="torchrun starts one process per NPU",
            fix="take other nodes, or set NPUS_PER_NODE on every node",
        )


def _number(answer: Answer, key: str) -> int:
    text = answer.values.get(key, "")
    return int(text) if text.isdigit() else 0


def _shared(heard: Sequence[Answer], folder: Path, token: str) -> Line:
    see = [answer.host for answer in heard if answer.values.get("token") == token]
    if len(see) == len(heard):
        return ok("shared folder", f"all {len(heard)} nodes see {folder}")
    others = [answer.host for answer in heard if not answer.local]
    if not set(see).intersection(others):
        return ok(
            "shared folder",
            f"{folder} is each node's own: every node takes weights of its own, and saves its part",
        )
    unseen = ", ".join(answer.host for answer in heard if answer.host not in see)
    return fail(
        "shared folder",
        f"{unseen} does not see {folder}, other nodes do",
        where=str(folder),
        why="rank files end up in two places, and a resume misses some",
        fix="mount the folder on every node, or on none",
    )


def _master_reached(heard: Sequence[Answer], master: str, port: int) -> Iterator[Line]:
    cut = [answer.host for answer in heard if answer.values.get("reached") == "no"]
    if cut:
        yield fail(
            "master port",
            f"{', '.join(cut)} cannot reach {master} port {port}",
            where=f"{master}:{port}",
            why="all ranks meet there",
            fix="open the port in the firewall or security group, or use the address that the "
            "nodes share",
        )
    elif any(answer.values.get("reached") == "yes" for answer in heard):
        yield ok("master port", f"{master} port {port} is reached")


@contextmanager
def _probe_file(case: Case) -> Iterator[tuple[Path, str] | None]:
    """Lay a file into the save folder, or the nearest one above it, and take it away again."""
    if case.save_path is None:
        yield None
        return
    token = secrets.token_hex(16)
    path = existing(case.save_path) / f".taskpack_probe_{token}"
    try:
        path.write_text(token, encoding="ascii")
    except OSError:
        # check_disk says what is wrong with the folder
        yield None
        return
    try:
        yield path, token
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _master_port(case: Case) -> Iterator[int | None]:
    """Listen where the run will, if this is the master and the port is free."""
    given = case.host.env.get("MASTER_PORT", "")
    port = int(given) if given.isdigit() else None
    if port is None and case.profile is not None:
        port = case.profile.platform.master_port
    if port is None or not is_this_machine(case, case.hosts[0]):
        yield None
        return
    family = socket.AF_INET6 if ":" in case.hosts[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
            server.listen(64)
        except OSError:
            # check_ports says who is there
            yield None
            return
        yield port
