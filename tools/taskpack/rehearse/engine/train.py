"""The training loop: micro batches shared out over the processes, one Adam step per batch."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from taskpack.rehearse.engine import log
from taskpack.rehearse.engine.checkpoint import save_iteration
from taskpack.rehearse.engine.dataset import IGNORED, Row, SampleMaker, collate, sample_order
from taskpack.rehearse.engine.model import Trainable
from taskpack.rehearse.engine.schedule import learning_rate
from taskpack.rehearse.engine.settings import Settings

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Process:
    """This process among those that share each batch."""

    rank: int
    size: int

    @property
    def prints(self) -> bool:
        """Whether this process prints; Megatron leaves that to the last."""
        return self.rank == self.size - 1


class Batches:
    """Every micro batch of every step, in an order that does not depend on the processes."""

    def __init__(
        self, rows: Sequence[Row], maker: SampleMaker, settings: Settings, *, pad_id: int
    ) -> None:
        self._rows = rows
        self._maker = maker
        self._micro = settings.micro_batch
        self._per_step = settings.global_batch // settings.micro_batch
        self._pad_id = pad_id
        self._image_id = int(settings.structure["img_context_token_id"])
        batch = settings.micro_batch * settings.dp_size
        self._order = sample_order(len(rows), batch=batch, seed=settings.seed)

    @property
    def per_step(self) -> int:
        """Micro batches of one step, over all processes."""
        return self._per_step

    def step(self, process: Process) -> Iterator[Batch]:
        """Yield this process's micro batches of the next step."""
        chosen = [list(islice(self._order, self._micro)) for _ in range(self._per_step)]
        for numbers in chosen[process.rank :: process.size]:
            samples = [self._maker.make(self._rows[number]) for number in numbers]
            yield collate(samples, pad_id=self._pad_id, image_id=self._image_id)


def train(
    trainable: Trainable,
    batches: Batches,
    settings: Settings,
    process: Process,
    *,
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> list[float]:
    """Train, log and save.

    Returns:
        The loss of every step, averaged over its micro batches.
    """
    import torch

    optimizer = torch.optim.AdamW(
        trainable.parameters,
        lr=settings.lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        foreach=False,  # whole-model temporaries would double the memory
    )
    losses: list[float] = []
    meter = log.Meter()
    total = settings.train_iters * settings.global_batch
    for iteration in range(1, settings.train_iters + 1):
        rate = learning_rate(
            len(losses) * settings.global_batch,
            total,
            lr=settings.lr,
            min_lr=settings.min_lr,
            warmup_fraction=settings.warmup_fraction,
            style=settings.decay_style,
        )
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad(set_to_none=False)
        loss, tokens = _accumulate(trainable, batches, process)
        norm = _clip(trainable.parameters, settings.clip_grad)
        optimizer.step()
        losses.append(loss)
        meter.add(loss, tokens)
        if iteration % settings.log_interval == 0:
            progress = log.Progress(
                iteration, settings.train_iters, settings.global_batch, rate, norm
            )
            say(log.iteration_line(progress, meter, tokens=settings.log_tokens, now=datetime.now()))
            meter = log.Meter()
        if iteration % settings.save_interval == 0 or iteration == settings.train_iters:
            _save(trainable, iteration, settings, process, args=args, say=say)
    return losses


def _accumulate(trainable: Trainable, batches: Batches, process: Process) -> tuple[float, float]:
    """Leave the gradient of the whole batch in every process; return its loss and tokens."""
    import torch
    import torch.distributed as dist

    sums = torch.zeros(2)
    for batch in batches.step(process):
        loss = micro_batch_loss(trainable.model, batch) / batches.per_step
        torch.autograd.backward([loss])
        sums += torch.tensor([loss.item(), batch["input_ids"].shape[1] / batches.per_step])
    for parameter in trainable.parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
    dist.all_reduce(sums)
    return float(sums[0]), float(sums[1])


def micro_batch_loss(model: Any, batch: Batch) -> torch.Tensor:
    """Average cross entropy over the labelled tokens; the head runs on those alone."""
    from torch.nn import functional

    labels = batch["labels"][:, 1:]
    kept = labels != IGNORED
    hidden = last_hidden(model, batch)[:, :-1]
    return functional.cross_entropy(model.lm_head(hidden[kept]), labels[kept])


def last_hidden(model: Any, batch: Batch) -> torch.Tensor:
    """Run the model up to its last norm: [B, T, H]."""
    known = inspect.signature(model.model.forward).parameters
    inputs = {name: value for name, value in batch.items() if name in known and name != "labels"}
    hidden: torch.Tensor = model.model(**inputs, use_cache=False).last_hidden_state
    return hidden


def _clip(parameters: Sequence[torch.nn.Parameter], limit: float) -> float:
    """Clip to a norm, where 0 only measures it."""
    import torch

    return float(torch.nn.utils.clip_grad_norm_(parameters, limit or float("inf")))


def _save(
    trainable: Trainable,
    iteration: int,
    settings: Settings,
    process: Process,
    *,
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> None:
    import torch.distributed as dist

    layout = settings.layout
    say(log.saving_line(iteration, settings.save))
    if process.rank == 0:
        save_iteration(
            trainable, iteration, settings.save, layout=layout, hf_ref=settings.hf_ref, args=args
        )
    dist.barrier()
    say(log.saved_line(iteration, settings.save, tp_size=layout.tp_size, pp_size=layout.pp_size))
