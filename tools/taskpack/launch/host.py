"""The machine that is looked at: its files, its environment, its programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended."""

    code: int | None
    """None when it did not end in time."""

    text: str
    """What it printed on both streams."""


@dataclass(frozen=True, slots=True)
class Host:
    """Reads a machine without changing it; nothing here waits for ever."""

    root: Path = Path("/")
    """Where its files lie."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def path(self, name: str) -> Path:
        """Give the place of an absolute path."""
        return self.root / name.lstrip("/")

    def read(self, name: str | Path) -> str | None:
        """Read a small text file, whatever its encoding; None when it cannot be read."""
        path = name if isinstance(name, Path) else self.path(name)
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST_FILE).decode("utf-8", "replace")
        except OSError:
            return None

    def which(self, name: str, *folders: str) -> str | None:
        """Find a program on PATH or in some more folders."""
        places = [self.env.get("PATH", os.defpath), *(str(self.path(folder)) for folder in folders)]
        return shutil.which(name, path=os.pathsep.join(places))

    def run(self, words: Sequence[str], *, seconds: float, stdin: str = "") -> Ran:
        """Run a program in the C locale, and end it and its children when it takes too long.

        A program that hangs in the driver does not even die of SIGKILL, so it is left behind.
        """
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**self.env, "LC_ALL": "C", "LANGUAGE": "C"},
                start_new_session=True,
            )
        except OSError as error:
            return Ran(127, error.strerror or str(error))
        try:
            printed, _ = process.communicate(stdin.encode(), timeout=seconds)
            return Ran(process.returncode, printed.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
        try:
            printed, _ = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            printed = b""
        return Ran(None, printed.decode("utf-8", "replace"))


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
