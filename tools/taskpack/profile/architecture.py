"""The shape of a model, as in its config.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from taskpack.profile._section import NonNegative, Positive, Section

Epsilon = Annotated[float, Field(gt=0)]


class Text(Section):
    """The language model."""

    layers: Positive
    """Transformer layers."""

    hidden_size: Positive
    """Width of the residual stream."""

    ffn_hidden_size: Positive
    """Width of the gated feed-forward part: rows of gate, and again of up."""

    attention_heads: Positive
    """Query heads."""

    query_groups: Positive
    """Key/value heads, each shared by a group of query heads."""

    head_dim: Positive
    """Width of one head."""

    vocab_size: Positive
    """Rows of the embedding and of the output head."""

    max_positions: Positive
    """Longest sequence the model was made for, in tokens."""

    rope_theta: Epsilon
    """Base of the rotary position frequencies."""

    mrope_section: tuple[Positive, Positive, Positive]
    """Rotary frequencies for time, height and width; they add up to half a head."""

    norm_epsilon: Epsilon
    """Added to the variance in RMSNorm."""

    tied: bool
    """True when the output head is the embedding itself."""


class Vision(Section):
    """The vision encoder."""

    layers: Positive
    """Transformer layers."""

    hidden_size: Positive
    """Width of the residual stream."""

    ffn_hidden_size: Positive
    """Width of the feed-forward part; where it is gated: rows of gate, and again of up."""

    attention_heads: Positive
    """Heads; query, key and value have the same number."""

    in_channels: Positive
    """Colour channels of a picture."""

    patch_size: Positive
    """Edge of a patch in pixels."""

    temporal_patch_size: Positive
    """Frames in a patch."""

    spatial_merge_size: Positive
    """Patches per side that become one token."""

    window_size: Positive | None = None
    """Edge of an attention window in pixels; null in families without windows."""

    full_attention_layers: tuple[NonNegative, ...] = ()
    """Layers, counted from 0, that look beyond their window."""

    tokens_per_second: Positive | None = None
    """Time positions in a second of video; null counts frames."""

    norm_epsilon: Epsilon
    """Added to the variance in the normalization."""

    @property
    def gated(self) -> bool:
        """True when the feed-forward part is gated, and normalization has no bias.

        Both came together with the windows.
        """
        return self.window_size is not None

    @property
    def merged_size(self) -> int:
        """Width of the patches that become one token, side by side: input of the projector."""
        return self.hidden_size * self.spatial_merge_size**2


class Architecture(Section):
    """The shape of the whole model."""

    text: Text
    """The language model."""

    vision: Vision
    """The vision encoder."""
