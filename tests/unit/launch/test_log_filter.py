"""The quick search over a log finds whatever the slow one would."""

from __future__ import annotations

import pytest
from taskpack.launch.log_filter import LogFilter
from taskpack.launch.log_scan import SIGNATURES

KEYS = sorted({key for signature in SIGNATURES for key in signature.keys})
FILTER = LogFilter([key.encode() for key in KEYS])
HEALTHY = b"".join(
    b" [2026-08-01 10:00:%02d] iteration %8d/ 9000 | elapsed time per iteration (ms): 907.1 | lm "
    b"loss: 1.500000E+00 | grad norm: 0.207 | number of nan iterations:   0 |\n" % (n % 60, n)
    for n in range(500)
)


@pytest.mark.parametrize("key", KEYS)
def test_every_word_of_a_table_is_found_wherever_it_stands(key: str) -> None:
    # codes are printed in capitals, other words in any case
    for text in (key.upper(), key if key in map(bytes.decode, FILTER.words) else key.upper()):
        assert FILTER.may_hold(HEALTHY + b"x " + text.encode() + b": y\n" + HEALTHY)


def test_a_healthy_log_is_passed_over() -> None:
    assert not FILTER.may_hold(HEALTHY)
    assert not any(piece in HEALTHY.lower() for piece in FILTER.pieces)


def test_few_pieces_stand_for_many_words() -> None:
    assert len(FILTER.pieces) < len(FILTER.words) / 3
    assert all(any(piece in word for piece in FILTER.pieces) for word in FILTER.words)


def test_a_word_of_nothing_special_is_its_own_piece() -> None:
    assert LogFilter([b"123456"]).pieces == (b"123456",)
