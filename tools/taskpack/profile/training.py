"""What is trained, on how much, and how long."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from taskpack.profile._section import NonNegative, Positive, Section

Fraction = Annotated[float, Field(ge=0, le=1)]


class Batch(Section):
    """Samples per step."""

    micro: Positive = 1
    """Samples per NPU and forward pass."""

    accumulation: Positive | None = None
    """Micro batches per step; stands instead of `global`."""

    global_: Annotated[int | None, Field(alias="global", gt=0)] = None
    """Samples per step over all NPUs; stands instead of `accumulation`."""


class Train(Section):
    """Length, learning rate, saving and memory of a run."""

    iters: Positive
    """Steps of the run."""

    lr: Annotated[float, Field(gt=0)]
    """Highest learning rate."""

    min_lr: Annotated[float, Field(ge=0)] = 0.0
    """Learning rate at the end of the decay."""

    lr_decay: Literal["constant", "linear", "cosine", "inverse-square-root"] = "cosine"
    """Shape of the decay."""

    warmup_fraction: Fraction = 0.1
    """Share of the steps in which the learning rate rises."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 decay of the weights; 0 switches it off."""

    clip_grad: Annotated[float, Field(ge=0)] = 0.0
    """Largest gradient norm; 0 switches clipping off."""

    seed: NonNegative = 42
    """Start of every random number, the order of the data included."""

    seq_length: Positive = 1024
    """Longest sample in tokens; longer ones are cut."""

    save_interval: Positive = 5000
    """Steps between two checkpoints."""

    log_interval: Positive = 1
    """Steps between two log lines."""

    eval_interval: Positive = 10000
    """Steps between two evaluations; they need validation data."""

    eval_iters: Positive = 5000
    """Steps of one evaluation."""

    recompute: Literal["none", "full", "selective"] = "none"
    """Activations computed again in the backward pass: none, every layer, or core attention."""

    fused_gradients: bool = False
    """True adds gradients inside the matrix product where the release can; it takes CANN's ATB."""

    freeze: tuple[Literal["vision", "projector"], ...] = ("vision", "projector")
    """Parts that do not train. LoRA reaches only parts that are not frozen."""


class Lora(Section):
    """Size and place of the adapters."""

    r: Positive = 8
    """Rank: rows of A."""

    alpha: Positive = 16
    """The adapter is scaled by alpha / r."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the input of A that is dropped in training."""

    targets: tuple[str, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    """Modules that get an adapter."""

    canonical: bool = False
    """True trains q, k, v, gate and up as modules of their own, as Hugging Face does."""


class Tuning(Section):
    """Whether all weights train or adapters beside them."""

    mode: Literal["lora", "full"] = "lora"
    """What a launch does when TUNING is not set."""

    lora: Lora = Lora()
    """Adapters; also read in mode full, since TUNING=lora may ask for them at launch."""


def _iteration(value: Any) -> Any:
    if value in (None, "latest") or (type(value) is int and value > 0):
        return value
    raise PydanticCustomError("iteration", "a step, latest or null")


class Resume(Section):
    """Where training goes on from."""

    iteration: Annotated[int | Literal["latest"] | None, BeforeValidator(_iteration)] = None
    """Step of the save folder to go on from, or latest; null starts from the converted weights."""

    optimizer: bool = False
    """True saves the optimizer state, and loads it when resuming."""

    rng: bool = False
    """True saves the state of the random numbers, and loads it when resuming."""
