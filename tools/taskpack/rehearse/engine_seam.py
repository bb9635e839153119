"""What trains in a rehearsal. The scripts only see `pretrain_vlm.py` and `torchrun`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Protocol

from taskpack.rehearse.engine.main import TRAINED_DIR

TRAINED = "trained"


class Engine(Protocol):
    """Puts a trainer where a task's scripts look for MindSpeed-MM."""

    @property
    def name(self) -> str:
        """What trains, in a few words."""
        ...

    @property
    def limits(self) -> str:
        """What a rehearsal with it does not show."""
        ...

    def install(self, checkout: Path, *, entry: str, release: str) -> dict[str, str]:
        """Fill the checkout.

        Args:
            checkout: The scratch checkout; `tasks/` is there already.
            entry: Script that torchrun starts, relative to the checkout.
            release: MindSpeed-MM release of the task.

        Returns:
            Environment variables for the scripts.
        """
        ...

    def trained_dir(self, checkout: Path) -> Path | None:
        """Name the folder with what trained in plain HF or peft form, if the engine keeps it."""
        ...


class CpuEngine:
    """transformers and peft on the processors of this host."""

    name = "CPU engine (transformers + peft)"
    limits = (
        "It shows that names, layouts, data, flags and numbers fit together. It shows nothing "
        "about speed, memory, NPU kernels or HCCL: compute is data parallel over a few CPU "
        "processes, and TP and PP exist only in the checkpoints. Rank files are joined by the same "
        "table that cut them, so row orders rest on that table's own tests."
    )

    def install(self, checkout: Path, *, entry: str, release: str) -> dict[str, str]:
        """Write the entry script, the tool file and a `torchrun` and `taskpack` of this Python."""
        script = (
            '"""Stands where MindSpeed-MM\'s own script stands."""\n\n'
            "from taskpack.rehearse.engine import main\n\n"
            f"raise SystemExit(main({release!r}))\n"
        )
        (checkout / entry).write_text(script)
        tools = checkout / "mindspeed_mm" / "tools"
        tools.mkdir(parents=True)
        (tools / "tools.json").write_text("{}\n")
        programs = checkout / "bin"
        programs.mkdir()
        for name, module in (("torchrun", "taskpack.rehearse.torchrun"), ("taskpack", "taskpack")):
            program = programs / name
            command = f'exec {shlex.quote(sys.executable)} -m {module} "$@"'
            program.write_text(f"#!/usr/bin/env bash\n{command}\n")
            program.chmod(0o755)
        return {
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            TRAINED_DIR: str(checkout / TRAINED),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def trained_dir(self, checkout: Path) -> Path:
        """Name the folder that the engine leaves its weights in."""
        return checkout / TRAINED
