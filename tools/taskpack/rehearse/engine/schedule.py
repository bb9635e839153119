"""Megatron's learning rates: linear warm-up, then a decay, both counted in samples."""

from __future__ import annotations

import math


def learning_rate(
    consumed: int,
    total: int,
    *,
    lr: float,
    min_lr: float,
    warmup_fraction: float,
    style: str,
) -> float:
    """Compute the rate of the step that starts after `consumed` of `total` samples.

    The first step of a warm-up has rate 0, as in the trainer.
    """
    warmup = warmup_fraction * total
    if warmup > 0 and consumed <= warmup:
        return lr * consumed / warmup
    if style == "constant":
        return lr
    if style == "inverse-square-root":
        return max(min_lr, lr * math.sqrt(max(warmup, 1) / max(consumed, 1)))
    if consumed > total:
        return min_lr
    done = (consumed - warmup) / (total - warmup)
    share = 1.0 - done if style == "linear" else 0.5 * (math.cos(math.pi * done) + 1.0)
    return min_lr + share * (lr - min_lr)
