"""A tensor as bytes in a file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from taskpack.weights.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a contiguous tensor's bytes are.

    Attributes:
        path: The file.
        dtype: Element type, by our name.
        shape: Shape; `()` is a scalar.
        offset: Position of its first byte in the file.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize

    def row_nbytes(self, axis: int) -> int:
        """Bytes of one step along an axis, all axes before it having length 1."""
        return prod(self.shape[axis + 1 :]) * DTYPES[self.dtype].itemsize
