"""A file whose every byte has its place before the first one is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from taskpack.weights.dtypes import DTYPES

Extent = tuple[int, bytes]
"""An offset in a file and the bytes that belong there."""

TensorKey = tuple[str, str]
"""State dict (empty in a safetensors file) and name of a tensor."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to be written."""

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def address(self) -> TensorKey:
        """What identifies it in its file."""
        return self.key, self.name


def _no_tail(_crcs: Mapping[TensorKey, int]) -> tuple[Extent, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class OutFile:
    """A laid out file.

    Attributes:
        path: Relative to the output folder.
        size: Bytes.
        specs: The tensors in it.
        offsets: Where each tensor's bytes begin.
        head: Extents that are known before the data.
        tail: Gives the extents that need the CRC-32 of every tensor's bytes.
    """

    path: str
    size: int
    specs: tuple[TensorSpec, ...]
    offsets: Mapping[TensorKey, int]
    head: tuple[Extent, ...]
    tail: Callable[[Mapping[TensorKey, int]], tuple[Extent, ...]] = _no_tail
    needs_crc: bool = False
