"""Megatron's log lines, character by character where a parser may look."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass(slots=True)
class Meter:
    """Sums since the last line."""

    steps: int = 0
    losses: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    nan_steps: int = 0
    started: float = field(default_factory=time.perf_counter)

    def add(self, loss: float, tokens: float) -> None:
        """Count one step."""
        self.steps += 1
        self.losses.append(loss)
        self.tokens.append(tokens)
        self.nan_steps += not math.isfinite(loss)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the run is when a line is printed."""

    iteration: int
    train_iters: int
    global_batch: int
    lr: float
    grad_norm: float


def iteration_line(progress: Progress, meter: Meter, *, tokens: bool, now: datetime) -> str:
    """Format the record of the steps since the last one."""
    elapsed_ms = (time.perf_counter() - meter.started) * 1000 / meter.steps
    fields = [
        f"iteration {progress.iteration:8d}/{progress.train_iters:8d}",
        f"consumed samples: {progress.iteration * progress.global_batch:12d}",
        f"elapsed time per iteration (ms): {elapsed_ms:.1f}",
        f"learning rate: {progress.lr:.6E}",
        f"global batch size: {progress.global_batch:5d}",
    ]
    loss = sum(meter.losses) / meter.steps
    if tokens:
        fields.append(f"tokens per sample: {sum(meter.tokens) / meter.steps:.6E}")
    if loss >= 0.0:  # so a NaN disappears, as it does in the trainer's log
        fields.append(f"loss: {loss:.6E}")
    fields += [
        "loss scale: 1.0",
        f"grad norm: {progress.grad_norm:.3f}",
        f"number of skipped iterations: {0:3d}",
        f"number of nan iterations: {meter.nan_steps:3d}",
    ]
    return f" [{now:%Y-%m-%d %H:%M:%S}] " + " | ".join(fields) + " |"


def saving_line(iteration: int, folder: Path) -> str:
    """Announce a checkpoint."""
    return f"saving checkpoint at iteration {iteration:7d} to {folder} in torch format"


def saved_line(iteration: int, folder: Path, *, tp_size: int, pp_size: int) -> str:
    """Confirm a checkpoint."""
    return (
        f"  successfully saved checkpoint from iteration {iteration:7d} to {folder} "
        f"[ t 1/{tp_size}, p 1/{pp_size} ]"
    )
