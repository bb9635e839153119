"""A tensor as bytes in a file.

A tensor that stacks experts along its first axis is handled as its slices, each by the name
`tensor[index]`: they are placed, copied and accounted for like tensors of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

    def slices(self) -> list[TensorInfo]:
        """Give the slices along the first axis."""
        one = TensorInfo(self.path, self.dtype, self.shape[1:], self.offset)
        return [
            TensorInfo(self.path, self.dtype, one.shape, self.offset + index * one.nbytes)
            for index in range(self.shape[0])
        ]


_SLICE = re.compile(r"(.+)\[(\d+)\]")


def stack_of(name: str) -> tuple[str, int] | None:
    """Give tensor and index of a slice's name; None for the name of a whole tensor."""
    match = _SLICE.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def in_slices(tensors: Mapping[str, TensorInfo], wanted: Iterable[str]) -> dict[str, TensorInfo]:
    """Replace the tensors of which slices are wanted by all their slices."""
    stacks = {stack[0] for name in wanted if (stack := stack_of(name)) is not None}
    found: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        if name in stacks and info.shape:
            found |= {f"{name}[{index}]": part for index, part in enumerate(info.slices())}
        else:
            found[name] = info
    return found
