"""Element types under our short names, as safetensors and torch spell them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its name here, in a safetensors header and in a pickled storage."""

    name: str
    safetensors: str
    storage: str
    itemsize: int


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("bf16", "BF16", "BFloat16Storage", 2),
        DType("fp16", "F16", "HalfStorage", 2),
        DType("fp32", "F32", "FloatStorage", 4),
        DType("fp64", "F64", "DoubleStorage", 8),
        DType("int64", "I64", "LongStorage", 8),
        DType("int32", "I32", "IntStorage", 4),
        DType("int16", "I16", "ShortStorage", 2),
        DType("int8", "I8", "CharStorage", 1),
        DType("uint8", "U8", "ByteStorage", 1),
        DType("bool", "BOOL", "BoolStorage", 1),
    )
}
BY_SAFETENSORS = {dtype.safetensors: dtype for dtype in DTYPES.values()}
BY_STORAGE = {dtype.storage: dtype for dtype in DTYPES.values()}
FLOATS = ("bf16", "fp16", "fp32")
"""Types that weights may have, and that `--dtype` casts between."""
