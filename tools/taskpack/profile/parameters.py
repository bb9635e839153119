"""How many parameters a model has, and how many of them train."""

from __future__ import annotations

from dataclasses import dataclass

from taskpack.profile.architecture import Text, Vision
from taskpack.profile.model import Profile


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

    @property
    def parameters(self) -> int:
        return (self.inputs + self.bias) * sum(self.outputs)

    def adapter(self, rank: int) -> int:
        return rank * (self.inputs + sum(self.outputs))


def text_layer_parameters(text: Text) -> int:
    """Count the parameters of one text layer."""
    return sum(linear.parameters for linear in _text_linears(text)) + 2 * text.hidden_size


def vision_parameters(vision: Vision, text: Text) -> int:
    """Count the parameters of the vision encoder and its projector."""
    return _encoder_parameters(vision) + _projector_parameters(vision, text)


def embedding_parameters(text: Text) -> int:
    """Count the parameters of the embedding, and of the output head."""
    return text.vocab_size * text.hidden_size


def modules(profile: Profile, mode: str) -> tuple[Module, ...]:
    """List the parts of a model and what trains of them.

    Args:
        profile: The checked profile.
        mode: `full` or `lora`.
    """
    text, vision = profile.architecture.text, profile.architecture.vision
    layers = text.layers
    sizes = {
        "vision encoder": _encoder_parameters(vision),
        "vision projector": _projector_parameters(vision, text),
        "text embedding": embedding_parameters(text),
        "text layers": layers * text_layer_parameters(text),
        "text output": text.hidden_size + (0 if text.tied else embedding_parameters(text)),
    }
    frozen = {f"vision {'encoder' if part == 'vision' else part}" for part in profile.train.freeze}
    linears = {
        "vision encoder": (vision.layers, _vision_linears(vision)),
        "vision projector": (1, _projector_linears(vision, text)),
        "text layers": (layers, _text_linears(text)),
    }
    made = []
    for name, size in sizes.items():
        if name in frozen:
            made.append(Module(name, size, 0, "frozen"))
        elif mode == "full":
            made.append(Module(name, size, size, "full"))
        else:
            count, parts = linears.get(name, (0, ()))
            made.append(_adapted(name, size, profile, list(parts) * count))
    return tuple(made)


def _adapted(name: str, size: int, profile: Profile, linears: list[_Linear]) -> Module:
    lora = profile.tuning.lora
    parts = [part for linear in linears for part in _targets(linear, canonical=lora.canonical)]
    hit = [part for part in parts if part.name in lora.targets]
    names = list(dict.fromkeys(part.name for part in hit))
    trainable = sum(part.adapter(lora.r) for part in hit)
    return Module(name, size, trainable, f"LoRA on {' '.join(names)}" if names else "frozen")


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
    return (
        _Linear("linear_qkv", text.hidden_size, (text.hidden_size, key_rows, key_rows), bias=True),
        _Linear("linear_proj", text.hidden_size, (text.hidden_size,), bias=False),
        _Linear("linear_fc1", text.hidden_size, (text.ffn_hidden_size,) * 2, bias=False),
        _Linear("linear_fc2", text.ffn_hidden_size, (text.hidden_size,), bias=False),
    )


def _vision_linears(vision: Vision) -> tuple[_Linear, ...]:
    width = vision.hidden_size
    return (
        # the trainer keeps vision's q, k and v in one module even in a canonical model
        _Linear("linear_qkv", width, (3 * width,), bias=True),
        _Linear("linear_proj", width, (width,), bias=True),
        _Linear("linear_fc1", width, (vision.ffn_hidden_size,) * (1 + vision.gated), bias=True),
        _Linear("linear_fc2", vision.ffn_hidden_size, (width,), bias=True),
    )


def _projector_linears(vision: Vision, text: Text) -> tuple[_Linear, ...]:
    merged = vision.merged_size
    return (
        _Linear("linear_fc1", merged, (merged,), bias=True),
        _Linear("linear_fc2", merged, (text.hidden_size,), bias=True),
    )


def _encoder_parameters(vision: Vision) -> int:
    norms = 2 * _norm_parameters(vision)
    layer = sum(linear.parameters for linear in _vision_linears(vision)) + norms
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return vision.layers * layer + patch * vision.hidden_size


def _projector_parameters(vision: Vision, text: Text) -> int:
    products = sum(linear.parameters for linear in _projector_linears(vision, text))
    return products + _norm_parameters(vision)


def _norm_parameters(vision: Vision) -> int:
    """Count those of one RMSNorm, or of one LayerNorm where the feed-forward part is not gated."""
    return vision.hidden_size * (1 if vision.gated else 2)
