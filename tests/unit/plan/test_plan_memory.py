"""The memory of an NPU: against published figures, and against what the weights really place."""

from __future__ import annotations

from collections import defaultdict
from math import prod

import pytest
from planning import Load
from taskpack.plan.memory import GIB, memory
from taskpack.plan.stages import per_rank
from taskpack.plan.volumes import volumes
from taskpack.profile.parameters import WEIGHT_BYTES
from taskpack.weights.rows import entries
from taskpack.weights.sides import mm_side
from taskpack.weights.task import task_layout, task_model

FOUR_STAGES = ("parallel.text_layers=[1, 10, 10, 7]", "parallel.vision_layers=[32, 0, 0, 0]")


@pytest.mark.parametrize(
    ("layout", "static", "published"),
    [
        ((), 38.5e9, 50.26e9),
        (("parallel.tp=2",), 25.6e9, 34.20e9),
        (FOUR_STAGES, 28.0e9, 50.26e9),
        (("parallel.tp=2", *FOUR_STAGES), 21.0e9, 34.20e9),
    ],
    ids=["PP2 TP1", "PP2 TP2", "PP4 TP1", "PP4 TP2"],
)
def test_the_7b_lies_between_its_static_part_and_the_published_peak(
    load: Load, layout: tuple[str, ...], static: float, published: float
) -> None:
    # published for 8 NPUs of 64 GB with TP 1 and 2; the page does not say how many stages
    fullest = max(memory(load("qwen2.5vl-7b", *layout)), key=lambda found: found.total)
    assert fullest.static == pytest.approx(static, rel=0.003)
    assert static < fullest.total < published
    assert fullest.low < fullest.total < fullest.high


@pytest.mark.parametrize(
    "overrides",
    [
        ("qwen2.5vl-7b",),
        ("qwen2.5vl-7b", "parallel.tp=4"),
        ("qwen2.5vl-3b",),
        (
            "qwen2.5vl-3b",
            "parallel.tp=2",
            "parallel.text_layers=[18, 18]",
            "parallel.vision_layers=[32, 0]",
        ),
        ("qwen2.5vl-72b",),
        ("qwen2vl-7b", "parallel.tp=2"),
        ("qwen2vl-2b",),
        (
            "qwen2.5vl-32b",
            "tuning.mode=full",
            "parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]",
            "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
        ),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_rank_holds_the_parameters_that_the_weights_place_there(
    load: Load, overrides: tuple[str, ...]
) -> None:
    profile = load(*overrides)
    model, layout = task_model(profile), task_layout(profile)
    placed: dict[str, int] = defaultdict(int)
    rows = entries(model.family, model.dims, canonical=False, tied=model.tied)
    for stored in mm_side(rows, layout, tied=model.tied):
        placed[stored.file] += prod(stored.shape)
    held = per_rank(profile)
    for tp_rank in range(profile.parallel.tp):
        for pp_rank, stages in enumerate(held):
            counted = sum(stage.size.on_rank(profile.parallel.tp) for stage in stages)
            assert counted == placed[layout.folder(tp_rank, pp_rank)]
    assert volumes(profile).converted == WEIGHT_BYTES * sum(placed.values())


def test_recompute_keeps_only_the_inputs_of_layers(load: Load) -> None:
    kept, again = (
        max(one.activations for one in memory(load("qwen2.5vl-72b", f"train.recompute={mode}")))
        for mode in ("none", "full")
    )
    # 11 layers x 7 micro batches of 1024 x 8192 bf16 numbers, and one layer whole
    assert 11 * 7 * 1024 * 8192 * 2 < again < 0.15 * kept


def test_the_distributed_optimizer_shares_its_state_by_the_copies(load: Load) -> None:
    two, four = (memory(load("qwen2.5vl-72b", f"platform.nodes={nodes}"))[1] for nodes in (2, 4))
    assert two.optimizer == 2 * four.optimizer
    assert (two.weights, two.gradients) == (four.weights, four.gradients)


def test_only_the_last_stage_holds_logits(load: Load) -> None:
    found = memory(load("qwen2.5vl-72b"))
    assert [one.logits > 0 for one in found] == [False] * 7 + [True]
    assert found[-1].logits == 1024 * 152064 // 2 * 12


def test_an_adapter_needs_gradients_for_itself_alone(load: Load) -> None:
    first = memory(load("qwen2.5vl-32b"))[0]
    assert first.gradients < 0.05 * GIB
    assert first.weights > 3 * GIB


def test_a_trained_vision_encoder_keeps_activations_a_frozen_one_does_not(load: Load) -> None:
    frozen, trained = (
        memory(load("qwen2.5vl-7b", f"train.freeze={freeze}"))[0]
        for freeze in ("[vision, projector]", "[]")
    )
    assert trained.activations > frozen.activations + GIB


def test_full_sharding_spreads_everything_over_all_npus(load: Load) -> None:
    (found,) = memory(
        load(
            "qwen2.5vl-72b", "parallel.fsdp2=true", "parallel.tp=1", "parallel.text_layers=[80]",
            "parallel.vision_layers=[32]", "batch.accumulation=1",
            "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2",
        )
    )  # fmt: skip
    assert found.optimizer == pytest.approx(12 * 72.7e9 / 32, rel=0.01)
    assert found.static < 50 * GIB


def test_context_parallel_shares_the_sequence(load: Load) -> None:
    whole, half = (
        memory(load("qwen2.5vl-7b", f"parallel.cp={cp}", "platform.nodes=2"))[1] for cp in (1, 2)
    )
    assert half.activations * 2 == pytest.approx(whole.activations, rel=0.001)
