"""How many parameters a model has, and how many of them train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskpack.profile.architecture import Text, Vision
from taskpack.profile.model import Profile

WEIGHT_BYTES = 2
"""Of a parameter in bf16."""

GRADIENT_BYTES = 4
"""Of a trained parameter: gradients add up in float32."""

OPTIMIZER_BYTES = 12
"""Of a trained parameter: a float32 copy and two moments of Adam."""


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of parameters, by what tensor parallel ranks do with them."""

    sharded: int = 0
    """Parameters that the ranks share out."""

    replicated: int = 0
    """Parameters that every rank holds: norms, biases behind a sum, patch embedding."""

    @property
    def total(self) -> int:
        """Parameters of the model."""
        return self.sharded + self.replicated

    def on_rank(self, tp_size: int) -> int:
        """Count the parameters that one rank holds."""
        return self.sharded // tp_size + self.replicated

    def __add__(self, other: Size) -> Size:
        return Size(self.sharded + other.sharded, self.replicated + other.replicated)

    def __mul__(self, count: int) -> Size:
        return Size(self.sharded * count, self.replicated * count)


@dataclass(frozen=True, slots=True)
class Part:
    """What a stage holds once, or once a layer."""

    size: Size
    trained: Size
    """Of the parameters those that train: all, none, or adapters beside them."""

    how: str
    """`full`, `frozen`, or `LoRA on ...`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that stages are made of."""

    patches: Part
    """Patch embedding, before the first vision layer."""

    vision_layer: Part
    projector: Part
    """Behind the last vision layer."""

    embedding: Part
    text_layer: Part
    final_norm: Part
    head: Part
    """As large as the embedding, also where it is the embedding itself."""


@dataclass(frozen=True, slots=True)
class Module:
    """A part of the model."""

    name: str
    parameters: int
    trainable: int
    """Parameters that train: all, those of the adapters, or none."""

    how: str
    """`full`, `frozen`, or `LoRA on ...`."""


@dataclass(frozen=True, slots=True)
class _Linear:
    """A matrix product: `outputs` fused matrices of these rows share one input."""

    name: str
    inputs: int
    outputs: tuple[int, ...]
    bias: bool
    row_parallel: bool = False

    @property
    def size(self) -> Size:
        weight, bias = self.inputs * sum(self.outputs), self.bias * sum(self.outputs)
        return Size(weight, bias) if self.row_parallel else Size(weight + bias)

    def adapter(self, rank: int) -> Size:
        first, second = rank * self.inputs, rank * sum(self.outputs)
        return Size(first, second) if self.row_parallel else Size(second, first)


def text_layer_parameters(text: Text) -> int:
    """Count the parameters of one text layer."""
    return _text_layer(text).total


def vision_parameters(vision: Vision, text: Text) -> int:
    """Count the parameters of the vision encoder and its projector."""
    layers = _vision_layer(vision) * vision.layers
    return (_patches(vision) + layers + _projector(vision, text)).total


def embedding_parameters(text: Text) -> int:
    """Count the parameters of the embedding, and of the output head."""
    return text.vocab_size * text.hidden_size


def parts(profile: Profile, mode: str) -> Parts:
    """Measure what stages are made of, and what trains of it.

    Args:
        profile: The checked profile.
        mode: `full` or `lora`.
    """
    text, vision = profile.architecture.text, profile.architecture.vision

    def part(size: Size, linears: Sequence[_Linear] = (), *, of: str = "text") -> Part:
        if of in profile.train.freeze:
            return Part(size, Size(), "frozen")
        if mode == "full":
            return Part(size, size, "full")
        return _adapted(size, profile, linears)

    table = Size(embedding_parameters(text))
    return Parts(
        patches=part(_patches(vision), of="vision"),
        vision_layer=part(_vision_layer(vision), _vision_linears(vision), of="vision"),
        projector=part(_projector(vision, text), _projector_linears(vision, text), of="projector"),
        embedding=part(table),
        text_layer=part(_text_layer(text), _text_linears(text)),
        final_norm=part(Size(0, text.hidden_size)),
        head=part(table),
    )


def modules(profile: Profile, mode: str) -> tuple[Module, ...]:
    """List the modules of a model and what trains of them.

    Args:
        profile: The checked profile.
        mode: `full` or `lora`.
    """
    made, shape = parts(profile, mode), profile.architecture
    output = [(made.final_norm, 1), (made.head, 0 if shape.text.tied else 1)]
    return (
        _module("vision encoder", (made.vision_layer, shape.vision.layers), (made.patches, 1)),
        _module("vision projector", (made.projector, 1)),
        _module("text embedding", (made.embedding, 1)),
        _module("text layers", (made.text_layer, shape.text.layers)),
        _module("text output", *output),
    )


def _module(name: str, *counted: tuple[Part, int]) -> Module:
    size = sum(part.size.total * count for part, count in counted)
    trained = sum(part.trained.total * count for part, count in counted)
    return Module(name, size, trained, counted[0][0].how)


def _adapted(size: Size, profile: Profile, linears: Sequence[_Linear]) -> Part:
    lora = profile.tuning.lora
    found = [part for linear in linears for part in _targets(linear, canonical=lora.canonical)]
    hit = [linear for linear in found if linear.name in lora.targets]
    names = list(dict.fromkeys(linear.name for linear in hit))
    trained = sum((linear.adapter(lora.r) for linear in hit), Size())
    return Part(size, trained, f"LoRA on {' '.join(names)}" if names else "frozen")


def _targets(linear: _Linear, *, canonical: bool) -> list[_Linear]:
    """Give what an adapter can be put on: canonical models keep some products apart."""
    apart = {
        ("linear_qkv", 3): ("q_proj", "k_proj", "v_proj"),
        ("linear_fc1", 2): ("gate_proj", "up_proj"),
    }
    names = apart.get((linear.name, len(linear.outputs)))
    if not canonical or names is None:
        return [linear]
    return [
        _Linear(name, linear.inputs, (rows,), linear.bias)
        for name, rows in zip(names, linear.outputs, strict=True)
    ]


def _text_linears(text: Text) -> tuple[_Linear, ...]:
    key_rows = text.query_groups * text.head_dim
    width, ffn = text.hidden_size, text.ffn_hidden_size
    return (
        _Linear("linear_qkv", width, (width, key_rows, key_rows), bias=True),
        _Linear("linear_proj", width, (width,), bias=False, row_parallel=True),
        _Linear("linear_fc1", width, (ffn,) * 2, bias=False),
        _Linear("linear_fc2", ffn, (width,), bias=False, row_parallel=True),
    )


def _vision_linears(vision: Vision) -> tuple[_Linear, ...]:
    width, ffn = vision.hidden_size, vision.ffn_hidden_size
    return (
        # the trainer keeps vision's q, k and v in one module even in a canonical model
        _Linear("linear_qkv", width, (3 * width,), bias=True),
        _Linear("linear_proj", width, (width,), bias=True, row_parallel=True),
        _Linear("linear_fc1", width, (ffn,) * (1 + vision.gated), bias=True),
        _Linear("linear_fc2", ffn, (width,), bias=True, row_parallel=True),
    )


def _projector_linears(vision: Vision, text: Text) -> tuple[_Linear, ...]:
    merged = vision.merged_size
    return (
        _Linear("linear_fc1", merged, (merged,), bias=True),
        _Linear("linear_fc2", merged, (text.hidden_size,), bias=True, row_parallel=True),
    )


def _text_layer(text: Text) -> Size:
    return _sum(_text_linears(text)) + Size(0, 2 * text.hidden_size)


def _vision_layer(vision: Vision) -> Size:
    return _sum(_vision_linears(vision)) + _norm(vision) * 2


def _patches(vision: Vision) -> Size:
    pixels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return Size(0, pixels * vision.hidden_size)


def _projector(vision: Vision, text: Text) -> Size:
    return _sum(_projector_linears(vision, text)) + _norm(vision)


def _norm(vision: Vision) -> Size:
    """Measure one RMSNorm, or one LayerNorm where the feed-forward part is not gated."""
    return Size(0, vision.hidden_size * (1 if vision.gated else 2))


def _sum(linears: Sequence[_Linear]) -> Size:
    return sum((linear.size for linear in linears), Size())
