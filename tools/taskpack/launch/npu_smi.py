"""What `npu-smi` prints, as records. Columns are found by their bars, so any width is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")
_VERSION = re.compile(r"npu-smi\s+(\S+)")
_NUMBERS = re.compile(r"\d+(?:\s+\d+)?")
_PAIR = re.compile(r"\s*([^:\uff1a]+?)\s*[:\uff1a]\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Chip:
    """One NPU as torch sees it: a card of A2, a die of A3."""

    npu: int
    """Number of the card."""

    chip: int
    """Number on the card."""

    device: int
    """Number in /dev/davinciN: the Phy-ID where there is one, else the card's number."""

    name: str
    health: str
    bus: str | None
    power_watts: float | None
    temperature: float | None
    aicore_percent: float | None

    hbm_used: int | None
    """MB; None where the table shows no memory."""

    hbm_total: int | None


@dataclass(frozen=True, slots=True)
class NpuProcess:
    """A process that holds memory of an NPU."""

    npu: int
    chip: int
    pid: int
    """As the host counts; a container has numbers of its own."""

    name: str
    memory: int | None
    """MB."""


@dataclass(frozen=True, slots=True)
class NpuTable:
    """All of `npu-smi info`."""

    version: str | None
    chips: tuple[Chip, ...]
    processes: tuple[NpuProcess, ...]

    def processes_on(self, chip: Chip) -> tuple[NpuProcess, ...]:
        """List who holds memory of a chip."""
        place = (chip.npu, chip.chip)
        return tuple(process for process in self.processes if (process.npu, process.chip) == place)


@dataclass(frozen=True, slots=True)
class Board:
    """Versions of `npu-smi info -t board`."""

    driver: str | None
    firmware: str | None
    compatibility: str | None
    """What the tool thinks of the two: OK, NOK, UNKNOWN or NOT SUPPORT."""

    faulty_chips: int | None


def parse_info(text: str) -> NpuTable:
    """Read `npu-smi info`; rows of another form are passed over."""
    version = _VERSION.search(text)
    chips: list[Chip] = []
    processes: list[NpuProcess] = []
    head: list[str] = []
    first: list[str] = []
    for cells in _rows(text):
        joined = " ".join(cells).lower()
        if joined.startswith(("npu ", "chip ")):
            head, first = [cell.lower() for cell in cells], []
        elif any("process id" in cell for cell in head):
            processes += _process(head, cells)
        elif first:
            chips += _chip(first, cells)
            first = []
        elif len(cells) >= 3 and re.match(r"\d+\s+\S", cells[0]):
            first = cells
    return NpuTable(version[1] if version else None, tuple(chips), tuple(processes))


def parse_count(text: str) -> int | None:
    """Read the number of cards from `npu-smi info -l`."""
    counts = [value for key, value in key_values(text) if key.lower() == "total count"]
    return _int(counts[0]) if counts else None


def parse_board(text: str) -> Board:
    """Read `npu-smi info -t board -i N`."""
    values = {key.lower(): value for key, value in key_values(text)}
    return Board(
        driver=values.get("software version") or None,
        firmware=values.get("firmware version") or None,
        compatibility=values.get("compatibility") or None,
        faulty_chips=_int(values.get("faulty chip count", "")),
    )


def key_values(text: str) -> Iterator[tuple[str, str]]:
    """Split lines of the form `key : value`."""
    for line in text.splitlines():
        if pair := _PAIR.fullmatch(line):
            yield pair[1], pair[2]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("|") and bare.endswith("|") and len(bare) > 1:
            yield [cell.strip() for cell in bare[1:-1].split("|")]


def _chip(first: Sequence[str], second: Sequence[str]) -> list[Chip]:
    numbers = second[0].split()
    if len(second) < 3 or not _NUMBERS.fullmatch(second[0]):
        return []
    npu, _, name = first[0].partition(" ")
    heat = _USAGE.sub(" ", first[2]).split()
    load = _USAGE.sub(" ", second[2]).split()
    # the last pair is HBM; chips without HBM show their memory there
    usage = _USAGE.findall(second[2])
    return [
        Chip(
            npu=int(npu),
            chip=int(numbers[0]),
            device=int(numbers[1] if len(numbers) > 1 else npu),
            name=name.strip(),
            health=first[1],
            bus=None if second[1] in ("", "NA", "-") else second[1],
            power_watts=_float(heat[0]) if heat else None,
            temperature=_float(heat[1]) if len(heat) > 1 else None,
            aicore_percent=_float(load[0]) if load else None,
            hbm_used=int(usage[-1][0]) if usage else None,
            hbm_total=int(usage[-1][1]) if usage else None,
        )
    ]


def _process(head: Sequence[str], cells: Sequence[str]) -> list[NpuProcess]:
    place = cells[0].split()
    if len(cells) < 3 or not place or not all(number.isdigit() for number in place):
        return []
    # a container's own number of the process may stand behind; the first one is the host's
    named = list(zip(head, cells, strict=False))
    pids = [value for key, value in named if "process id" in key]
    names = [value for key, value in named if "name" in key]
    sizes = [value for key, value in named if "memory" in key]
    pid = _int(pids[0]) if pids else None
    if pid is None:
        return []
    return [
        NpuProcess(
            npu=int(place[0]),
            chip=int(place[1]) if len(place) > 1 else 0,
            pid=pid,
            name=names[0] if names else "",
            memory=_int(sizes[0]) if sizes else None,
        )
    ]


def _int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None
