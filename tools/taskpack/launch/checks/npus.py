"""The NPUs as their own tool sees them: health, memory, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.launch.case import Case
from taskpack.launch.checks.devices import device_ids
from taskpack.launch.line import Line, fail, ok, warn
from taskpack.launch.npu_smi import Chip, NpuTable, parse_board, parse_info

_NAME = "npu-smi"
_SECONDS = 30.0
_BUSY_SHARE = 0.1
"""Share of HBM above which somebody uses an NPU; the driver's own share lies well below."""

NO_DCMI = "dcmi module initialize failed"


def check_npus(case: Case) -> Iterator[Line]:
    """Ask npu-smi about health, memory and processes."""
    tool = case.host.which("npu-smi", "/usr/local/bin", "/usr/local/sbin")
    if tool is None:
        yield warn(
            _NAME,
            "npu-smi is not on PATH",
            where="PATH, /usr/local/bin, /usr/local/sbin",
            why="health and memory of the NPUs cannot be looked at; training does not need it",
            fix="mount the host's npu-smi and its dcmi folder into the container",
        )
        return
    ran = case.host.run([tool, "info"], seconds=_SECONDS)
    table = parse_info(ran.text)
    if ran.code != 0 or not table.chips:
        yield _no_table(ran.code, ran.text, tool)
        return
    yield from _health(table)
    yield from _memory(table)
    yield from _count(case, table)
    yield from _board(case, tool, table)


def _no_table(code: int | None, text: str, tool: str) -> Line:
    if code is None:
        return fail(
            _NAME,
            f"npu-smi did not answer within {_SECONDS:.0f} s",
            where=tool,
            why="the driver hangs, and training would hang with it",
            fix="look at the host's dmesg; reset the NPUs or restart the host",
        )
    first = next((line.strip() for line in text.splitlines() if line.strip()), "nothing printed")
    if NO_DCMI in text:
        return fail(
            _NAME,
            f"npu-smi cannot reach the driver: {first}",
            where=tool,
            why="device nodes, the dcmi folder or a permission is missing",
            fix="give the container davinci_manager, devmm_svm, hisi_hdc and /usr/local/dcmi, and "
            "run as a member of the driver's group",
        )
    return fail(
        _NAME,
        f"npu-smi info ended with {code} and no table of NPUs: {first[:200]}",
        where=tool,
        why="the state of the NPUs is not known",
        fix="run npu-smi info by hand and follow what it says",
    )


def _health(table: NpuTable) -> Iterator[Line]:
    ill = [chip for chip in table.chips if chip.health.lower() != "ok"]
    if not ill:
        version = f", npu-smi {table.version}" if table.version else ""
        yield ok(_NAME, f"{len(table.chips)} x {table.chips[0].name}, all healthy{version}")
    for chip in ill:
        make = warn if chip.health.lower() == "warning" else fail
        yield make(
            _NAME,
            f"{_called(chip)} reports {chip.health}",
            where="npu-smi info",
            why="one sick NPU stops or slows all others of the run",
            fix=f"npu-smi info -t health -i {chip.npu}; take the node out if it stays so",
        )


def _memory(table: NpuTable) -> Iterator[Line]:
    sized = [chip for chip in table.chips if chip.hbm_total]
    held = [chip for chip in sized if table.processes_on(chip) or _share(chip) > _BUSY_SHARE]
    for chip in held:
        holders = [
            f"{process.name or 'a process'} (pid {process.pid}"
            + (f", {process.memory} MB)" if process.memory is not None else ")")
            for process in table.processes_on(chip)
        ]
        used = f"{_called(chip)}: {chip.hbm_used} of {chip.hbm_total} MB of HBM are taken"
        yield fail(
            "HBM",
            f"{used} by {', '.join(holders) or 'a process that this container does not see'}",
            where="npu-smi info",
            why="a second process on an NPU fails to start its communication (EJ0001), or memory "
            "runs out",
            fix="end that run if it is yours and wait ten seconds, or take other NPUs"
            + ("" if holders else "; look for it on the host"),
        )
    if sized and not held:
        free = min((chip.hbm_total or 0) - (chip.hbm_used or 0) for chip in sized)
        yield ok("HBM", f"at least {free} MB free on each of {len(sized)} NPUs, no process")


def _count(case: Case, table: NpuTable) -> Iterator[Line]:
    ids, shown = device_ids(case), {chip.device for chip in table.chips}
    if ids and len(ids) != len(table.chips):
        yield warn(
            _NAME,
            f"npu-smi shows NPUs {sorted(shown)}, /dev has {ids}",
            where="npu-smi info, /dev/davinci*",
            why="an NPU that only one of the two knows has fallen off the bus or is not mounted",
            fix="compare with the host; restart it if an NPU is lost there too",
        )


def _board(case: Case, tool: str, table: NpuTable) -> Iterator[Line]:
    npu = table.chips[0].npu
    ran = case.host.run([tool, "info", "-t", "board", "-i", str(npu)], seconds=_SECONDS)
    board = parse_board(ran.text)
    if ran.code != 0 or board.firmware is None:
        return
    shown = f"driver {board.driver or 'unknown'}, firmware {board.firmware}"
    if board.compatibility == "NOK" or board.faulty_chips:
        yield fail(
            "firmware",
            f"{shown}: compatibility {board.compatibility}, faulty chips {board.faulty_chips or 0}",
            where=f"npu-smi info -t board -i {npu}",
            why="driver and firmware must be of one release, and a faulty chip is lost to the run",
            fix="install the firmware of the driver's release and restart the host",
        )
    else:
        yield ok("firmware", shown)


def _called(chip: Chip) -> str:
    return f"NPU {chip.npu} chip {chip.chip} (/dev/davinci{chip.device})"


def _share(chip: Chip) -> float:
    return (chip.hbm_used or 0) / (chip.hbm_total or 1)
