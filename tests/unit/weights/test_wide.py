"""Rounding fp64 to the types of weights, against the definition; and the products of a merge."""

import numpy as np
import pytest
from taskpack.weights.casts import to_fp32
from taskpack.weights.wide import Wide

# mantissa bits without the leading one, and the exponent of the smallest normal number
TYPES = {
    "bf16": (7, -126, np.uint16),
    "fp16": (10, -14, np.float16),
    "fp32": (23, -126, np.float32),
}


def by_definition(values: np.ndarray, dtype: str) -> np.ndarray:
    """Take the nearest multiple of a unit of last place, of two the even one."""
    bits, least, _ = TYPES[dtype]
    _, exponent = np.frexp(values)
    unit = np.ldexp(1.0, np.maximum(exponent - 1, least) - bits)
    return np.rint(values / unit) * unit


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    out = np.empty(values.shape, TYPES[dtype][2])
    Wide().round(values, dtype, out)
    return to_fp32(out, dtype).astype(np.float64)


@pytest.mark.parametrize("dtype", TYPES)
def test_rounding_is_to_nearest_with_ties_to_even(dtype: str) -> None:
    bits, least, _ = TYPES[dtype]
    random = np.random.default_rng(3)
    plain = random.normal(0, 0.1, 40_000)
    # exact ties, and values that are a hair beside one, which fp32 cannot tell from it
    whole = random.integers(1 << bits, 2 << bits, 10_000)
    ties = np.ldexp(whole + 0.5, random.integers(-12, 3, 10_000) - bits)
    beside = ties * (1 + random.choice([-1, 1], ties.shape) * 2.0**-45)
    tiny = random.normal(0, 1, 10_000) * 2.0 ** (least - 2)
    values = np.concatenate([plain, ties, -ties, beside, tiny, [0.0, -0.0]])[None, :]
    assert (rounded(values, dtype) == by_definition(values, dtype)).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_too_large_becomes_infinite(dtype: str) -> None:
    values = np.array([[1e300, -1e300, 1.0]])
    assert rounded(values, dtype).tolist() == [[np.inf, -np.inf, 1.0]]


def test_every_bf16_number_survives_the_way_to_fp64_and_back() -> None:
    numbers = np.arange(1 << 16).astype(np.uint16)
    finite = numbers[(numbers & 0x7F80) != 0x7F80].reshape(-1, 255)
    wide, back = Wide(), np.empty_like(finite)
    total = wide.widen(finite, "bf16")
    assert (total == to_fp32(finite, "bf16")).all()
    wide.round(total, "bf16", back)
    assert (back == finite).all()


def test_nan_stays_visible() -> None:
    rows = np.array([[0x7FC0, 0xFFFF, 0x7F80, 0x3F80]], np.uint16)
    wide, back = Wide(), np.empty_like(rows)
    wide.round(wide.widen(rows, "bf16"), "bf16", back)
    assert np.isfinite(to_fp32(back, "bf16")).tolist() == [[False, False, False, True]]


def test_products_of_bf16_factors_do_not_depend_on_how_they_are_cut() -> None:
    random = np.random.default_rng(4)
    b, a = (
        to_fp32(random.integers(0x3C00, 0x3F00, s).astype(np.uint16), "bf16").astype(float)
        for s in ((96, 64), (64, 160))
    )
    wide = Wide()
    whole = wide.multiply(b, a, 7 / 3).copy()
    for rows in (1, 7, 32):
        for columns in (16, 53):
            part = wide.multiply(b[:rows], a[:, columns:], 7 / 3)
            assert (part == whole[:rows, columns:]).all()
