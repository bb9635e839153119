"""Bytes that a forward pass leaves for the backward pass, in bf16 with flash attention."""

from __future__ import annotations

from math import ceil

from taskpack.profile import Profile
from taskpack.profile.architecture import Text, Vision

_BF16 = 2
_FLOAT32 = 4
# npu_fusion_attention keeps a maximum and a sum of 8 floats for every query and head
_SOFTMAX_BYTES = 2 * 8 * _FLOAT32
# bf16 logits and their gradient, and both again in float32 for the loss
LOGIT_BYTES = 2 * (_BF16 + _FLOAT32)


def tokens_per_rank(profile: Profile) -> int:
    """Count the tokens of a micro batch on one rank when every sample is as long as may be."""
    return ceil(profile.batch.micro * profile.train.seq_length / profile.parallel.cp)


def media_tokens(profile: Profile) -> int:
    """Count the tokens of the largest picture or video of a sample; 0 for text alone."""
    data, vision = profile.data, profile.architecture.vision
    side = vision.patch_size * vision.spatial_merge_size
    if data.media == "images":
        return data.image_max_pixels // side**2
    if data.media == "videos":
        frames = ceil(data.video_max_frames / vision.temporal_patch_size)
        return frames * (data.video_max_pixels // side**2)
    return 0


def patches_per_rank(profile: Profile) -> int:
    """Count the vision patches of a micro batch when each sample holds one largest picture."""
    merged = profile.architecture.vision.spatial_merge_size**2
    tokens = min(media_tokens(profile), profile.train.seq_length)
    return ceil(profile.batch.micro * tokens * merged / profile.parallel.cp)


def text_layer_bytes(text: Text, tp_size: int, *, sequence_parallel: bool = False) -> float:
    """Measure what one text layer keeps for each token."""
    rows = (text.attention_heads + text.query_groups) * text.head_dim
    # input and output of both norms; query, key, value and the result of attention; gate, up and
    # their product
    full, shared = 4 * text.hidden_size, 2 * rows + 3 * text.ffn_hidden_size
    softmax = _SOFTMAX_BYTES * text.attention_heads
    whole = full / tp_size if sequence_parallel else full
    return _BF16 * (whole + shared / tp_size) + softmax / tp_size


def vision_layer_bytes(vision: Vision, tp_size: int) -> float:
    """Measure what one vision layer keeps for each patch when it trains."""
    ffn = (3 if vision.gated else 2) * vision.ffn_hidden_size
    softmax = _SOFTMAX_BYTES * vision.attention_heads
    shared = 4 * vision.hidden_size + ffn
    return _BF16 * (4 * vision.hidden_size + shared / tp_size) + softmax / tp_size


def projector_bytes(vision: Vision) -> float:
    """Measure what the projector keeps for each token of a picture when it trains."""
    return _BF16 * 4 * vision.merged_size


def layer_input_bytes(width: int) -> int:
    """Measure what a recomputed layer keeps for each token: its input."""
    return _BF16 * width


def micro_batches_in_flight(profile: Profile, pp_rank: int) -> float:
    """Count the micro batches whose activations a stage holds at once, in its own layers.

    One forward, one backward: a stage runs ahead by the stages behind it. With virtual stages each
    of them holds its own share, so the number is a fraction of the layers of all of them.
    """
    pp, vpp = profile.parallel.pp, profile.parallel.vpp
    if vpp == 1:
        return min(pp - pp_rank, profile.accumulation)
    ahead = 2 * (pp - pp_rank - 1) + (vpp - 1) * pp + 1
    return min(ahead, vpp * profile.accumulation) / vpp
