"""Bytes on disk: converted weights, checkpoints of a run, and what a conversion takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from taskpack.plan.stages import per_rank
from taskpack.profile import Profile
from taskpack.profile.parameters import OPTIMIZER_BYTES, WEIGHT_BYTES, modules

SLOW_DISK_BYTES_PER_SECOND = 28e6
"""A slow shared disk, as MindSpeed-MM's guide has met it: 60 GB in 36 minutes."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Bytes that the steps of a run write."""

    hf: int
    """The model in Hugging Face form."""

    converted: int
    """The same, cut for the ranks: some parameters lie on several of them."""

    largest_rank_file: int
    checkpoint: int
    """One checkpoint of the run."""

    largest_write: int
    """What one rank writes of it: the longest of them keeps all others waiting."""

    saves: int
    """Checkpoints of the whole run."""

    @property
    def run(self) -> int:
        """All checkpoints of the run; nothing deletes the older ones."""
        return self.saves * self.checkpoint

    def to_json(self) -> dict[str, int]:
        """Give the sizes as plain data."""
        return {**asdict(self), "run": self.run}


def volumes(profile: Profile) -> Volumes:
    """Measure what a run writes."""
    tp, held = profile.parallel.tp, per_rank(profile)
    sizes = [sum(stage.size.on_rank(tp) for stage in stages) for stages in held]
    trained = [sum(stage.trained.on_rank(tp) for stage in stages) for stages in held]
    saved = trained if profile.tuning.mode == "lora" else sizes
    optimizer = OPTIMIZER_BYTES if profile.resume.optimizer else 0
    iters, interval = profile.train.iters, profile.train.save_interval
    return Volumes(
        hf=WEIGHT_BYTES * sum(module.parameters for module in modules(profile, "full")),
        converted=WEIGHT_BYTES * tp * sum(sizes),
        largest_rank_file=WEIGHT_BYTES * max(sizes),
        checkpoint=tp * (WEIGHT_BYTES * sum(saved) + optimizer * sum(trained)),
        largest_write=max(
            WEIGHT_BYTES * weights + optimizer * states
            for weights, states in zip(saved, trained, strict=True)
        ),
        saves=max(-(-iters // interval), 1),
    )
