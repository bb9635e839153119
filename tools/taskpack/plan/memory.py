"""Memory of an NPU, by stage and by what fills it. An estimate: it states what it assumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from taskpack.plan.activations import (
    LOGIT_BYTES,
    layer_input_bytes,
    media_tokens,
    micro_batches_in_flight,
    patches_per_rank,
    projector_bytes,
    text_layer_bytes,
    tokens_per_rank,
    vision_layer_bytes,
)
from taskpack.plan.stages import Stage, per_rank
from taskpack.profile import Profile
from taskpack.profile.parameters import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES, parts

GIB = 1 << 30
HBM_GIB = {"A2": 64, "A3": 64}
"""Memory of one NPU (on A3: one die) for each generation, in GiB."""

_RUNTIME_BYTES = 4 * GIB
_LEAST_RUNTIME_BYTES = 2 * GIB
_LOW_SHARE = 0.5
_HIGH_SHARE = 1.1


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one NPU of a stage."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    runtime: int
    """CANN, the communication buffers of HCCL and what the driver keeps."""

    @property
    def static(self) -> int:
        """What is there before the first sample."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """The estimate, for samples that are as long as they may be."""
        return self.static + self.activations + self.logits + self.runtime

    @property
    def low(self) -> int:
        """Lower end of the band: samples of half the length, a small runtime."""
        passing = _LOW_SHARE * (self.activations + self.logits)
        return self.static + int(passing) + _LEAST_RUNTIME_BYTES

    @property
    def high(self) -> int:
        """Upper end of the band: memory that the allocator holds in pieces."""
        return int(_HIGH_SHARE * self.total)

    def to_json(self) -> dict[str, int]:
        """Give the parts, the total and the band as plain data."""
        named = {each.name: int(getattr(self, each.name)) for each in fields(self)}
        return {**named, "total": self.total, "low": self.low, "high": self.high}


def memory(profile: Profile) -> list[Memory]:
    """Estimate the memory of an NPU of each stage."""
    return [_stage_memory(profile, pp_rank, held) for pp_rank, held in enumerate(per_rank(profile))]


def activations(profile: Profile) -> dict[str, list[int]]:
    """Give the activations of an NPU of each stage, with all layers kept and with full recompute.

    Selective recompute keeps what `none` does: flash attention holds no scores anyway.
    """
    modes = ("none", "full")
    trains = [profile.train.model_copy(update={"recompute": mode}) for mode in modes]
    return {
        mode: [one.activations for one in memory(profile.model_copy(update={"train": train}))]
        for mode, train in zip(modes, trains, strict=True)
    }


def hbm_bytes(profile: Profile, hbm_gib: int | None = None) -> int:
    """Give the memory of an NPU: what was asked for, or what its generation has."""
    return (hbm_gib or HBM_GIB[profile.platform.device]) * GIB


def assumptions(profile: Profile) -> list[str]:
    """Say what the estimate rests on."""
    picture = media_tokens(profile)
    seen = f"one picture or video of {picture} tokens" if picture else "no picture"
    shards = f"{profile.dp * profile.parallel.cp} ranks (DP x CP)"
    return [
        f"bf16 weights {WEIGHT_BYTES} B, float32 gradients {GRADIENT_BYTES} B, Adam "
        f"{OPTIMIZER_BYTES} B a trained parameter, the last shared by {shards}",
        f"samples of {profile.train.seq_length} tokens with {seen}, flash attention, one forward "
        "one backward",
        f"recompute {profile.train.recompute}"
        + (", which flash attention makes the same as none" if _selective(profile) else ""),
        f"{_RUNTIME_BYTES // GIB} GiB for CANN, HCCL and the driver (assumed, not measured)",
        f"band: from half the sample length with {_LEAST_RUNTIME_BYTES // GIB} GiB of runtime, to "
        f"{_HIGH_SHARE - 1:.0%} more for the allocator",
    ]


def _selective(profile: Profile) -> bool:
    return profile.train.recompute == "selective"


def _stage_memory(profile: Profile, pp_rank: int, held: Sequence[Stage]) -> Memory:
    tp = profile.parallel.tp
    size = sum(stage.size.on_rank(tp) for stage in held)
    trained = sum(stage.trained.on_rank(tp) for stage in held)
    if profile.tuning.mode == "lora":
        size += trained
    logits = tokens_per_rank(profile) * profile.architecture.text.vocab_size // tp * LOGIT_BYTES
    passing = {
        "activations": int(_activations(profile, pp_rank, held)),
        "logits": logits if any(stage.head for stage in held) else 0,
        "runtime": _RUNTIME_BYTES,
    }
    if profile.parallel.fsdp2:
        return _fully_sharded(profile, size, trained, passing)
    return Memory(
        weights=WEIGHT_BYTES * size,
        gradients=GRADIENT_BYTES * trained,
        optimizer=OPTIMIZER_BYTES * trained // (profile.dp * profile.parallel.cp),
        **passing,
    )


def _fully_sharded(profile: Profile, size: int, trained: int, passing: dict[str, int]) -> Memory:
    """Share everything by all NPUs; two layers are whole at a time, one with its gradients."""
    world, layer = profile.world_size, parts(profile, profile.tuning.mode).text_layer.size.total
    return Memory(
        weights=WEIGHT_BYTES * (size // world + 2 * layer),
        gradients=GRADIENT_BYTES * (trained // world + layer),
        optimizer=OPTIMIZER_BYTES * trained // world,
        **passing,
    )


def _activations(profile: Profile, pp_rank: int, held: Sequence[Stage]) -> float:
    """Measure what a stage keeps of all micro batches in flight."""
    shape, tp = profile.architecture, profile.parallel.tp
    text_layers = sum(stage.text_layers for stage in held)
    seeing = 0 if "vision" in profile.train.freeze else sum(one.vision_layers for one in held)
    tokens, patches = tokens_per_rank(profile), patches_per_rank(profile)
    shared = profile.extra.flags.get("--sequence-parallel") is True
    text_layer = tokens * text_layer_bytes(shape.text, tp, sequence_parallel=shared)
    vision_layer = patches * vision_layer_bytes(shape.vision, tp)
    again = 0.0
    if profile.train.recompute == "full":
        again = max(text_layer * bool(text_layers), vision_layer * bool(seeing))
        text_layer = tokens * layer_input_bytes(shape.text.hidden_size)
        vision_layer = patches * layer_input_bytes(shape.vision.hidden_size)
    kept = text_layers * text_layer + seeing * vision_layer
    if "projector" not in profile.train.freeze and any(stage.projector for stage in held):
        merged = shape.vision.spatial_merge_size**2
        kept += patches / merged * projector_bytes(shape.vision)
    return micro_batches_in_flight(profile, pp_rank) * kept + again
