from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from taskpack.rehearse.engine.log import Meter, Progress, iteration_line, saved_line, saving_line
from taskpack.rehearse.engine.schedule import learning_rate
from taskpack.rehearse.runner import LOSS


@pytest.mark.parametrize(
    ("style", "consumed", "rate"),
    [
        ("cosine", 0, 0.0),
        ("cosine", 5, 0.5),
        ("cosine", 10, 1.0),
        ("cosine", 55, 0.55),  # half way down to the minimum of 0.1
        ("cosine", 100, 0.1),
        ("linear", 55, 0.55),
        ("linear", 101, 0.1),
        ("constant", 80, 1.0),
        ("inverse-square-root", 40, 0.5),
    ],
)
def test_rates_rise_linearly_and_then_fall(style: str, consumed: int, rate: float) -> None:
    found = learning_rate(consumed, 100, lr=1.0, min_lr=0.1, warmup_fraction=0.1, style=style)
    assert found == pytest.approx(rate)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    rate = learning_rate(0, 100, lr=1.0, min_lr=0.0, warmup_fraction=0.0, style="cosine")
    assert rate == 1.0


def line(loss: float, *, tokens: bool = True) -> str:
    meter = Meter()
    meter.add(loss, 120.0)
    progress = Progress(iteration=1, train_iters=3, global_batch=2, lr=0.0, grad_norm=29.815)
    return iteration_line(progress, meter, tokens=tokens, now=datetime(2026, 11, 30, 19, 41, 21))


def test_a_record_has_the_trainers_fields_in_order() -> None:
    found = line(18.86532)
    start, elapsed, rest = found.partition("elapsed time per iteration (ms): ")
    assert start + elapsed == (
        " [2026-11-30 19:41:21] iteration        1/       3 | consumed samples:            2 | "
        "elapsed time per iteration (ms): "
    )
    assert rest.partition(" ")[2] == (
        "| learning rate: 0.000000E+00 | global batch size:     2 | "
        "tokens per sample: 1.200000E+02 | loss: 1.886532E+01 | loss scale: 1.0 | "
        "grad norm: 29.815 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |"
    )


def test_tokens_per_sample_appear_only_on_request() -> None:
    assert "tokens per sample" not in line(1.0, tokens=False)


def test_a_nan_loss_vanishes_and_is_counted() -> None:
    found = line(float("nan"))
    assert " loss: " not in found
    assert found.endswith("number of nan iterations:   1 |")


def test_the_runner_reads_the_loss_and_not_the_loss_scale() -> None:
    assert LOSS.findall(line(18.86532)) == ["1.886532E+01"]


def test_saves_are_announced_and_confirmed() -> None:

    assert (
        saving_line(2, Path("d")) == "saving checkpoint at iteration       2 to d in torch format"
    )
    assert saved_line(2, Path("d"), tp_size=2, pp_size=8) == (
        "  successfully saved checkpoint from iteration       2 to d [ t 1/2, p 1/8 ]"
    )
