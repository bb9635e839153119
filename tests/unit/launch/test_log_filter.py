"""The quick search over a log finds whatever the slow one would."""

from __future__ import annotations

import pytest
from taskpack.launch.log_filter import LogFilter
from taskpack.launch.log_scan import SIGNATURES

KEYS = sorted({key for signature in SIGNATURES for key in signature.keys})
FILTER = LogFilter([key.encode() for key in KEYS])
HEALTHY = b"".join(
    b" [2026-08-01 10:00:%02d] iteration %8d/ 9000 | elapsed time per iteration (ms): 907.1 | lm "
    b"loss: 1.507015E+00 | grad norm: 0.207 | number of nan iterations:   0 |\n" % (n % 60, n)
    for n in range(500)
)


@pytest.mark.parametrize("key", KEYS)
def test_every_word_of_a_table_is_found_among_lines_of_progress(key: str) -> None:
    # codes are printed in capitals, other words in any case
    assert FILTER.may_hold(HEALTHY + b"x " + key.upper().encode() + b": y\n" + HEALTHY)


def test_an_error_that_is_glued_to_a_line_of_progress_is_found() -> None:
    assert FILTER.may_hold(HEALTHY.rstrip() + b"OSError: No space left on device\n")


def test_a_healthy_log_is_passed_over() -> None:
    assert not FILTER.may_hold(HEALTHY)
