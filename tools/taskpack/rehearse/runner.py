"""The rehearsal: a scratch checkout, the task's own scripts in order, and the checks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from taskpack.data import convert_llava
from taskpack.errors import HostError
from taskpack.profile import Profile, load_release, to_yaml
from taskpack.rehearse.engine_seam import Engine
from taskpack.rehearse.narrow_checkpoint import save_narrow_checkpoint
from taskpack.rehearse.outcome import Outcome, Step
from taskpack.rehearse.sample_data import sample_text, take_user_rows, write_sample_rows
from taskpack.render import render_pack, render_task

ROUND_TRIP = "ckpt/round_trip"
LOSS = re.compile(r"\bloss: ([0-9.]+E[+-][0-9]+)")

# Settings of the scripts: the user's shell may hold them for the real run.
SETTINGS = frozenset(
    (
        "NPUS_PER_NODE",
        "NNODES",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "HOSTFILE",
        "MICRO_BATCH_SIZE",
        "GRAD_ACCUMULATION",
        "GLOBAL_BATCH_SIZE",
        "TRAIN_ITERS",
        "SEQ_LENGTH",
        "LR",
        "SAVE_INTERVAL",
        "LOG_INTERVAL",
        "LOAD_PATH",
        "BASE_PATH",
        "SAVE_PATH",
        "HF_PATH",
        "MERGED_PATH",
        "EXPORT_PATH",
        "ADAPTER_PATH",
        "MM_PATH",
        "ITERATION",
        "WATCHDOG_SECONDS",
        "STOP_SECONDS",
        "STOP_WITH_STDIN",
        "MAX_RESTARTS",
        "RESTART_FROM",
    )
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What the user brings; stand-ins take the place of what is absent."""

    hf: Path | None = None
    data: Path | None = None
    media_root: Path | None = None


class Stage:
    """A scratch checkout and the scripts that run in it.

    Args:
        checkout: An empty folder.
        twin: The narrow profile.
        tuning: `lora` or `full`.
        outcome: Where steps and losses are noted.
        out: Where progress is shown.
    """

    def __init__(
        self, checkout: Path, twin: Profile, *, tuning: str, outcome: Outcome, out: TextIO
    ) -> None:
        self.checkout = checkout
        self.twin = twin
        self.task = checkout / "tasks" / twin.model
        self.outcome = outcome
        self._tuning = tuning
        self._out = out
        self._environment: dict[str, str] = {}

    def build(self, sources: Sources, engine: Engine) -> None:
        """Render the twin's task, write its weights and data, and install the engine."""
        started = time.perf_counter()
        self.say(f"== build: scratch checkout in {self.checkout}")
        render_task(self.twin, self.task)
        render_pack(self.checkout / "tasks")
        (self.task / "profile.yaml").write_text(to_yaml(self.twin), encoding="utf-8")
        hf_dir = self.checkout / self.twin.hf.dir
        save_narrow_checkpoint(self.twin, hf_dir, text=sample_text(), source=sources.hf)
        self.outcome.facts["data"] = self._write_rows(sources)
        release = load_release(self.twin.release)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in SETTINGS},
            **engine.install(self.checkout, entry=release.entry, release=release.name),
            "TUNING": self._tuning,
            # a platform's variables would place the node of this shell, not the twin's
            "PLATFORM": "none",
        }
        if self.twin.platform.nodes > 1:
            self._environment |= {"NODE_RANK": "0", "MASTER_ADDR": "localhost"}
        seconds = time.perf_counter() - started
        self.outcome.steps.append(Step("build", "twin, weights and data", seconds, 0))
        self.say(f"   done in {seconds:.1f} s")

    def _write_rows(self, sources: Sources) -> str:
        target = self.checkout / self.twin.data.files[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        if sources.data is not None:
            return take_user_rows(sources.data, target, media_root=sources.media_root)
        rows = write_sample_rows(target.parent)
        return convert_llava([rows], target).summary()

    def run(self, name: str, script: str, *, environment: Mapping[str, str] | None = None) -> str:
        """Run a script of the task and give back what it printed.

        Raises:
            HostError: It failed; its output has been shown.
        """
        path = f"tasks/{self.twin.model}/{script}"
        extra = environment or {}
        settings = [f"{key}={shlex.quote(value)}" for key, value in extra.items()]
        command = " ".join([*settings, "bash", path])
        self.say(f"== {name}: {command}")
        started = time.perf_counter()
        lines, code = self._stream(["bash", path], {**self._environment, **extra})
        seconds = time.perf_counter() - started
        self.outcome.steps.append(Step(name, command, seconds, code))
        self.say(f"   {'done' if code == 0 else f'exit {code}'} in {seconds:.1f} s")
        if code:
            raise HostError(
                f"step {name!r} ended with {code}",
                where=f"{self.checkout}: {command}",
                why="a rehearsal needs every script of the task to succeed",
                fix="see the output above; the same would have happened on the cluster",
            )
        return "".join(lines)

    def _stream(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[list[str], int]:
        lines = []
        with subprocess.Popen(
            command,
            cwd=self.checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line)
                    self.say(f"   {line.rstrip()}")
            except BaseException:
                process.terminate()
                raise
        return lines, process.returncode

    def say(self, text: str) -> None:
        """Show a line of progress at once."""
        print(text, file=self._out, flush=True)

    def path(self, relative: str) -> Path:
        """Place a path of the profile in the checkout."""
        return self.checkout / relative


def run_scripts(stage: Stage, *, tuning: str) -> None:
    """Run the task as its README says: convert, fine-tune, merge, export."""
    twin = stage.twin
    stage.run("convert", "convert_hf_to_mm.sh")
    stage.run(
        "base round trip",
        "convert_mm_to_hf.sh",
        environment={"MM_PATH": twin.paths.mm, "EXPORT_PATH": ROUND_TRIP},
    )
    output = stage.run("fine-tune", twin.launcher)
    stage.outcome.losses = [float(number) for number in LOSS.findall(output)]
    if tuning == "lora":
        stage.run("merge", "merge_lora.sh")
    stage.run("export", "convert_mm_to_hf.sh")


def describe(outcome: Outcome, profile: Profile, twin: Profile) -> None:
    """Note what was rehearsed."""
    real, narrow = profile.architecture, twin.architecture
    outcome.facts |= {
        "release": f"MindSpeed-MM {twin.release}",
        "layout": (
            f"TP {twin.parallel.tp} x PP {twin.parallel.pp}, text layers "
            f"{twin.parallel.text.to_lists()}, vision layers {twin.parallel.vision.to_lists()}"
        ),
        "widths": (
            f"hidden {narrow.text.hidden_size} for {real.text.hidden_size}, feed-forward "
            f"{narrow.text.ffn_hidden_size} for {real.text.ffn_hidden_size}, head "
            f"{narrow.text.head_dim} for {real.text.head_dim}; layers, heads, query groups and "
            "vocabulary are the real ones"
        ),
        "training": (
            f"{twin.train.iters} steps of {twin.global_batch} samples, "
            f"learning rate {twin.train.lr:g}"
        ),
        "nodes": (
            f"one run as node 0 stands for {twin.platform.nodes} node(s) of "
            f"{twin.platform.npus_per_node} NPUs"
        ),
    }


def progress_stream(*, as_json: bool) -> TextIO:
    """Choose where progress goes: JSON has stdout for itself."""
    return sys.stderr if as_json else sys.stdout
