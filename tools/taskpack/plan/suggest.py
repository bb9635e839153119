"""Layouts for a number of NPUs, best first.

Every layout that the rules allow is tried; layers are shared out so that stages cost the same, and
moved on where a stage would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from taskpack.errors import CheckFailed
from taskpack.parallel import spread
from taskpack.plan.cluster import split_npus
from taskpack.plan.memory import GIB, Memory, memory
from taskpack.plan.speed import Speed, speed, stage_costs
from taskpack.profile import Profile
from taskpack.profile.checks import check_profile

_MOST_STAGES = 32
_LONG_SEQUENCE = 16384
"""Tokens from which sharing a sequence is worth trying."""

_MOVES = 64
_MORE = (2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A layout, what it takes and how fast it is against others."""

    profile: Profile
    fullest: Memory
    speed: Speed
    hbm: int

    @property
    def fits(self) -> bool:
        """True when the whole band fits."""
        return self.fullest.high <= self.hbm

    @property
    def may_fit(self) -> bool:
        """True when the lower end of the band fits."""
        return self.fullest.low <= self.hbm

    @property
    def settings(self) -> dict[str, Any]:
        """Values that make a profile have this layout."""
        parallel, batch = self.profile.parallel, self.profile.batch
        return {
            "parallel.tp": parallel.tp,
            "parallel.cp": parallel.cp,
            "parallel.text_layers": parallel.text.to_lists(),
            "parallel.vision_layers": parallel.vision.to_lists(),
            "batch.micro": batch.micro,
            "batch.accumulation": self.profile.accumulation,
            "train.recompute": self.profile.train.recompute,
            "platform.nodes": self.profile.platform.nodes,
            "platform.npus_per_node": self.profile.platform.npus_per_node,
        }

    @property
    def why(self) -> str:
        """Say what speaks for and against it."""
        spare = (self.hbm - self.fullest.high) / GIB
        tight = "tight: may not fit" if self.may_fit else "too large"
        room = f"{spare:.1f} GiB to spare" if self.fits else tight
        costs = [f"{self.speed.bubble:.0%} of a step is the pipeline filling and draining"]
        if self.speed.unevenness >= 0.01:
            costs.append(f"slowest stage {self.speed.unevenness:.0%} above the mean")
        if self.speed.exchange >= 0.01:
            costs.append(f"exchange between ranks adds {self.speed.exchange:.0%}")
        if self.profile.train.recompute == "full":
            costs.append("recompute adds a forward pass")
        return "; ".join([room, *costs])


def suggest(profile: Profile, npus: int, hbm: int, *, limit: int = 5) -> list[Suggestion]:
    """Give the best layouts: those that surely fit first, and by speed among them.

    Args:
        profile: The task; what trains, on how long samples, and its global batch stay.
        npus: NPUs of the cluster.
        hbm: Memory of an NPU in bytes.
        limit: Most layouts to give; one of each TP x PP x CP.

    Raises:
        ProfileError: Several nodes do not make up that number of NPUs.
    """
    nodes, per_node = split_npus(npus, profile.platform.npus_per_node)
    found = [
        _fitted(_balanced(candidate), hbm)
        for candidate in _candidates(profile, nodes, per_node)
        if not any(check_profile(candidate)) and not _hopeless(candidate, hbm)
    ]
    usable = sorted(
        (one for one in found if one.may_fit),
        key=lambda one: (one.fits, one.speed.samples),
        reverse=True,
    )
    best: dict[tuple[int, int, int], Suggestion] = {}
    for one in usable:
        parallel = one.profile.parallel
        best.setdefault((parallel.tp, parallel.pp, parallel.cp), one)
    return list(best.values())[:limit]


def measure(profile: Profile, hbm: int) -> Suggestion:
    """Measure a profile as it is, to stand beside suggestions."""
    fullest = max(memory(profile), key=lambda one: one.total)
    return Suggestion(profile, fullest, speed(profile), hbm)


def suggest_or_fail(profile: Profile, npus: int, hbm: int) -> list[Suggestion]:
    """Give the best layouts.

    Raises:
        CheckFailed: None fits.
        ProfileError: As for `suggest`.
    """
    found = suggest(profile, npus, hbm)
    if found:
        return found
    more = next(
        (
            npus * times
            for times in _MORE
            if any(one.fits for one in suggest(profile, npus * times, hbm))
        ),
        None,
    )
    lighter = "tuning.mode: lora" if profile.tuning.mode == "full" else "a shorter train.seq_length"
    raise CheckFailed(
        f"no layout of {profile.model} fits on {npus} NPUs of {hbm // GIB} GiB",
        where="taskpack plan --suggest",
        why="even the lower end of the estimate exceeds an NPU, with every layer recomputed",
        fix=f"use {f'{more} NPUs, or ' if more else ''}{lighter}",
    )


def _candidates(profile: Profile, nodes: int, per_node: int) -> Iterator[Profile]:
    """List layouts with even stages, of any memory and not yet held to the rules."""
    shape, world = profile.architecture, nodes * per_node
    long = profile.train.seq_length >= _LONG_SEQUENCE
    micros = sorted({1, profile.batch.micro})
    for tp, cp, micro, recompute in product(
        (1, 2, 4, 8, 16), (1, 2, 4, 8) if long else (1,), micros, ("none", "full")
    ):
        for pp in range(1, min(_MOST_STAGES, shape.text.layers) + 1):
            if tp > per_node or world % (tp * cp * pp):
                continue
            yield _changed(
                profile,
                {
                    "parallel": {
                        "tp": tp,
                        "cp": cp,
                        "vision_tp": None,
                        "fsdp2": False,
                        "text_layers": _even(shape.text.layers, pp),
                        "vision_layers": (shape.vision.layers, *[0] * (pp - 1)),
                    },
                    "batch": _batch(profile, micro, world // (tp * cp * pp)),
                    "train": {"recompute": recompute},
                    "platform": {"nodes": nodes, "npus_per_node": per_node},
                },
            )


def _batch(profile: Profile, micro: int, copies: int) -> dict[str, int | None]:
    """Keep the samples of a step as near as whole micro batches allow."""
    wanted = round(profile.global_batch / (micro * copies))
    return {"micro": micro, "accumulation": max(wanted, 1), "global_": None}


def _changed(profile: Profile, changes: dict[str, dict[str, Any]]) -> Profile:
    sections = {
        name: getattr(profile, name).model_copy(update=values) for name, values in changes.items()
    }
    return profile.model_copy(update=sections)


def _even(layers: int, stages: int) -> tuple[int, ...]:
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))


def _hopeless(profile: Profile, hbm: int) -> bool:
    """Tell that no way to share out the layers makes the stages fit."""
    stages = memory(profile)
    return sum(one.static for one in stages) > hbm * len(stages)


def _balanced(made: Profile) -> Profile:
    """Share text layers out by what they cost beside vision and the head."""
    even = made.parallel.text.chunks[0]
    costs = stage_costs(made)
    if len(even) == 1:
        return made
    bare = stage_costs(_changed(made, {"parallel": {"text_layers": tuple(n + 1 for n in even)}}))
    layer = bare[0] - costs[0]
    base = [cost - layer * count for cost, count in zip(costs, even, strict=True)]
    counts = spread(base, layer, sum(even))
    return _changed(made, {"parallel": {"text_layers": counts}})


def _fitted(profile: Profile, hbm: int) -> Suggestion:
    """Move layers from the fullest stage to the emptiest while the fullest does not fit."""
    high = [one.high for one in memory(profile)]
    for _ in range(_MOVES):
        source, target = high.index(max(high)), high.index(min(high))
        counts = list(profile.parallel.text.chunks[0])
        if high[source] <= hbm or counts[source] == 1 or source == target:
            break
        counts[source] -= 1
        counts[target] += 1
        moved = _changed(profile, {"parallel": {"text_layers": tuple(counts)}})
        after = [one.high for one in memory(moved)]
        if max(after) >= high[source]:
            break
        profile, high = moved, after
    return measure(profile, hbm)
