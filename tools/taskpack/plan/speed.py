"""Relative speed of a layout: which of two is faster, not how fast either is."""

from __future__ import annotations

from dataclasses import dataclass

from taskpack.plan.activations import patches_per_rank, tokens_per_rank
from taskpack.plan.stages import Stage, per_rank
from taskpack.profile import Profile
from taskpack.profile.parameters import Parts, parts

# The one published pair: the 7B (width 3584) at TP 2 has 0.551 of the rate of TP 1 on the same
# NPUs. What ranks exchange grows with the width, what they compute with its square.
_TP_WIDTH = 3584
_TP_COST = (1 / 0.551 - 1) * 2
# assumed: no figure is published for sequences that are shared out
_CP_COST = 0.3


@dataclass(frozen=True, slots=True)
class Speed:
    """What a step costs, and what of it is not useful work."""

    samples: float
    """Samples a unit of time, over all NPUs; only ratios mean something."""

    bubble: float
    """Share of the step in which a stage waits for the pipeline to fill and drain."""

    unevenness: float
    """How far the slowest stage lies above the mean one."""

    exchange: float
    """How much tensor and context parallel add to the time of computing."""


def speed(profile: Profile) -> Speed:
    """Estimate the speed of a layout."""
    exchange = _exchange(profile)
    costs = [exchange * cost / profile.parallel.tp for cost in stage_costs(profile)]
    micro_batches, slowest, all_stages = profile.accumulation, max(costs), sum(costs)
    step = (micro_batches - 1) * slowest + all_stages
    return Speed(
        samples=profile.global_batch / step,
        bubble=max(1 - micro_batches * slowest / step, 0.0),
        unevenness=slowest * len(costs) / all_stages - 1,
        exchange=exchange - 1,
    )


def stage_costs(profile: Profile) -> list[float]:
    """Measure the operations of a micro batch on each stage, of all tensor parallel ranks."""
    made = parts(profile, profile.tuning.mode)
    return [sum(_cost(profile, made, stage) for stage in held) for held in per_rank(profile)]


def _cost(profile: Profile, made: Parts, stage: Stage) -> float:
    text, tokens = profile.architecture.text, tokens_per_rank(profile)
    passes = _passes(profile, trains=True)
    # two operations a parameter and token; attention looks at half of the sequence on average
    looks = 2 * profile.train.seq_length * text.attention_heads * text.head_dim
    layer = 2 * made.text_layer.size.total + looks
    cost = passes * tokens * layer * stage.text_layers
    if stage.head:
        cost += (2 + (profile.tuning.mode == "full")) * tokens * 2 * made.head.size.total
    seen = _passes(profile, trains="vision" not in profile.train.freeze)
    patches = patches_per_rank(profile)
    return cost + seen * patches * 2 * made.vision_layer.size.total * stage.vision_layers


def _passes(profile: Profile, *, trains: bool) -> int:
    """Count forward passes that a layer costs: a gradient of inputs or weights costs one each."""
    if not trains:
        return 1
    backward = 2 if profile.tuning.mode == "full" else 1
    return 1 + backward + (profile.train.recompute == "full")


def _exchange(profile: Profile) -> float:
    tp, cp = profile.parallel.tp, profile.parallel.cp
    width = profile.architecture.text.hidden_size
    return (1 + _TP_COST * (tp - 1) / tp * _TP_WIDTH / width) * (1 + _CP_COST * (cp - 1) / cp)
