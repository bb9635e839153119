"""A machine with NPUs, made of plain files and stand-in programs."""

from __future__ import annotations

from pathlib import Path

from taskpack.launch.case import Case
from taskpack.launch.host import Host
from taskpack.profile import load_profile

TASKS = Path(__file__).parents[3] / "tasks"
WIDTHS = {"narrow": (20, 12, 40), "98 columns": (27, 15, 52), "118 columns": (27, 15, 72)}


def row(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """One line of a table; the first cells take the widths, the rest what they need."""
    return (
        "|"
        + "|".join(f" {cell}".ljust(width) for cell, width in zip(cells, widths, strict=False))
        + "|"
    )


def rule(widths: tuple[int, ...], char: str) -> str:
    """A line between rows."""
    return "+" + "+".join(char * width for width in widths) + "+"


def info_table(
    chips: list[tuple[tuple[str, str, str], tuple[str, str, str]]],
    processes: list[tuple[str, ...]],
    *,
    widths: tuple[int, int, int] = WIDTHS["98 columns"],
    phy: bool = False,
    heads: tuple[str, ...] = ("NPU     Chip", "Process id", "Process name", "Process memory(MB)"),
) -> str:
    """What `npu-smi info` prints for chips (two rows of cells each) and processes."""
    whole = (sum(widths) + 2,)
    lines = [rule(whole, "-"), row(("npu-smi 24.9.rc9    Version: 24.9.rc9",), whole)]
    power = "Power(W)    Temp(C)           Hugepages-Usage(page)"
    lines += [rule(widths, "-"), row(("NPU   Name", "Health", power), widths)]
    second = "Chip  Phy-ID" if phy else "Chip"
    usage = "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)"
    lines += [row((second, "Bus-Id", usage), widths), rule(widths, "=")]
    for first, below in chips:
        lines += [row(first, widths), row(below, widths), rule(widths, "=")]
    columns = (widths[0], widths[1], 20, *(widths[2] // 2 for _ in heads[3:]))
    lines += [rule(columns, "-"), row(heads, columns), rule(columns, "=")]
    for process in processes:
        lines += [row(process, whole if len(process) == 1 else columns), rule(columns, "=")]
    return "\n".join(lines) + "\n"


def a2_chip(
    npu: int, health: str = "OK", hbm: str = "3012 / 65536"
) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """The two rows of an A2 card."""
    return (
        (f"{npu}     910B3", health, "95.5        41                0    / 0"),
        ("0", "0000:A1:00.0", f"12          0    / 0          {hbm}"),
    )


def idle(npu: int) -> tuple[str]:
    """The row that stands where a card has no process."""
    return (f"No running processes found in NPU {npu}",)


class Machine:
    """Builds the root of a machine and its PATH."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir(parents=True)
        (self.root / "dev").mkdir(parents=True)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin"}

    def put(self, name: str, text: str = "") -> Path:
        """Write a file at an absolute path of the machine."""
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def program(self, name: str, script: str) -> None:
        """Put a stand-in program on PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def prints(self, name: str, text: str, code: int = 0) -> None:
        """Put a stand-in program on PATH that prints a text."""
        page = self.bin.parent / f"{name}.txt"
        page.write_text(text, encoding="utf-8")
        self.program(name, f"cat '{page}'; exit {code}")

    def with_npus(self, count: int, *, prefix: str = "/usr/local/Ascend") -> Machine:
        """Give it NPUs, a driver and CANN with ATB."""
        for number in range(count):
            self.put(f"/dev/davinci{number}")
        for name in ("davinci_manager", "devmm_svm", "hisi_hdc"):
            self.put(f"/dev/{name}")
        self.put(f"{prefix}/driver/lib64/driver/libascend_hal.so")
        self.put(f"{prefix}/driver/version.info", "Version=7.1\npackage_version=25.5.0\n")
        self.put(f"{prefix}/cann/set_env.sh")
        self.put(f"{prefix}/nnal/atb/set_env.sh")
        self.put(f"{prefix}/cann/aarch64-linux/ascend_toolkit_install.info", "version=9.1.0\n")
        self.prints("npu-smi", info_table([a2_chip(n) for n in range(count)], [idle(0)]))
        return self

    def case(self, model: str | None = None, *, hosts: tuple[str, ...] = (), **env: str) -> Case:
        """Look at it, with a task's profile when one is named."""
        host = Host(root=self.root, env={**self.env, **env})
        if model is None:
            return Case(host=host, hosts=hosts)
        profile = load_profile(TASKS / model / "profile.yaml")
        task = self.root / "checkout" / "tasks" / model
        task.mkdir(parents=True, exist_ok=True)
        return Case(host=host, profile=profile, task=task, hosts=hosts)
