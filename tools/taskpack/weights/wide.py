"""fp64 in blocks that stay in a processor's cache: widen rows, multiply factors, round once.

Each thread has one set of buffers and every step writes into them, since fresh memory costs more
than the math.
"""

from __future__ import annotations

import threading
from math import frexp

import numpy as np
import numpy.typing as npt

from taskpack.weights.casts import Raw, from_fp64

Fp64 = npt.NDArray[np.float64]
BLOCK = 1 << 17
"""Elements of a block."""
_HALF = np.uint32(0x8000)  # of a unit of last place of bf16, in the bits of fp32
_LOW = np.uint32(0xFFFF)


class Wide(threading.local):
    """The buffers of a thread; each call hands out a view that the next one overwrites."""

    def __init__(self) -> None:
        self._total = np.empty(0)
        self._product = np.empty(0)
        self._fp32 = np.empty(0, np.float32)
        self._bits = np.empty(0, np.uint32)

    def _make_room(self, count: int) -> None:
        if len(self._total) < count:
            self._total, self._product = np.empty(count), np.empty(count)
            self._fp32, self._bits = np.empty(count, np.float32), np.empty(count, np.uint32)

    def widen(self, rows: Raw, dtype: str) -> Fp64:
        """Give rows in fp64; exact for every type."""
        self._make_room(rows.size)
        total = self._total[: rows.size].reshape(rows.shape)
        if dtype != "bf16":
            np.copyto(total, rows)
            return total
        bits = self._bits[: rows.size].reshape(rows.shape)
        np.copyto(bits, rows)
        np.left_shift(bits, np.uint32(16), out=bits)
        np.copyto(total, bits.view(np.float32))
        return total

    def multiply(self, b: Fp64, a: Fp64, scale: float) -> Fp64:
        """Give `scale * (b @ a)`: the product of short factors is exact, the scale comes after."""
        shape = (b.shape[0], a.shape[1])
        self._make_room(shape[0] * shape[1])
        product = self._product[: shape[0] * shape[1]].reshape(shape)
        if frexp(scale)[0] == 0.5:  # a power of two changes no bit of a product but its exponent
            return np.matmul(b * scale, a, out=product)
        np.matmul(b, a, out=product)
        return np.multiply(product, scale, out=product)

    def round(self, total: Fp64, dtype: str, out: Raw) -> None:
        """Round to a type, to nearest with ties to even, into an array of the same shape."""
        with np.errstate(over="ignore"):
            if dtype != "bf16":
                np.copyto(out, total, casting="same_kind")
                return
            self._make_room(total.size)
            near = self._fp32[: total.size].reshape(total.shape)
            np.copyto(near, total, casting="same_kind")
        bits, scratch = near.view(np.uint32), self._bits[: total.size].reshape(total.shape)
        np.bitwise_and(bits, _LOW, out=scratch)
        # only what fp32 takes for a tie can be one, or have been made one by the first rounding
        ties = scratch == _HALF
        np.add(bits, _HALF, out=bits)
        np.right_shift(bits, np.uint32(16), out=bits)
        np.copyto(out, bits, casting="unsafe")
        if ties.any():
            out[ties] = from_fp64(total[ties], dtype)
