"""Casts between the element types of weights, on raw numpy buffers, without torch.

bf16 is the upper half of fp32; rounding is to nearest, ties to even, as torch does it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Raw = npt.NDArray[Any]


def raw_dtype(name: str) -> np.dtype[Any]:
    """Give the numpy type that holds elements of a type; bf16 is held as its bits."""
    return np.dtype({"bf16": "<u2", "fp16": "<f2", "fp32": "<f4"}[name])


def to_fp32(values: Raw, dtype: str) -> npt.NDArray[np.float32]:
    """Widen to fp32; exact for every type."""
    if dtype == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32, copy=False)


def from_fp32(values: npt.NDArray[np.float32], dtype: str) -> Raw:
    """Round once to a type; NaN stays NaN."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> 16
        nan = np.isnan(values)
        if nan.any():
            rounded = np.where(nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
        return rounded.astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype(raw_dtype(dtype))


def is_finite(values: Raw, dtype: str) -> npt.NDArray[np.bool_]:
    """Tell which elements are neither infinite nor NaN."""
    if dtype == "bf16":
        finite: npt.NDArray[np.bool_] = (values & np.uint16(0x7F80)) != np.uint16(0x7F80)
        return finite
    return np.isfinite(values)


def from_fp64(values: npt.NDArray[np.float64], dtype: str) -> Raw:
    """Round once to a type.

    numpy has no bf16, so the way there leads through fp32: rounded to odd, which keeps every bit
    that decides the second rounding.
    """
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(raw_dtype(dtype))
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    inexact = np.isfinite(near) & (near != values)
    bits = near.view(np.uint32)
    bits -= (inexact & (np.abs(near) > np.abs(values))).astype(np.uint32)
    bits |= inexact.astype(np.uint32)
    return from_fp32(near, dtype)


def cast(values: Raw, source: str, target: str) -> Raw:
    """Cast between two types."""
    return values if source == target else from_fp32(to_fp32(values, source), target)
