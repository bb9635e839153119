"""Layouts that plan proposes, beside those that MindSpeed-MM ships."""

from __future__ import annotations

import json
import shlex

import pytest
from planning import Load, PlanJson, settings
from taskpack.cli import main
from taskpack.plan.memory import GIB
from taskpack.plan.speed import speed, stage_costs
from taskpack.plan.suggest import suggest
from taskpack.profile.checks import check_profile


def _layout(record: dict[str, int]) -> tuple[int, int, int]:
    return record["tp"], record["pp"], record["dp"]


def test_the_7b_on_8_npus_gets_the_shipped_sizes(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--suggest", "--npus", "8", "--hbm", "64")
    first = printed["suggestions"][0]
    assert (code, _layout(first)) == (0, (1, 2, 4))  # as shipped from 2.2.0 on: TP 1, PP 2
    assert first["fits"]
    assert first["global_batch"] == 192
    assert printed["profile"]["relative_speed"] == pytest.approx(0.89, abs=0.05)


def test_the_7b_does_not_fit_whole_on_one_npu_but_its_four_stages_are_near(
    plan_json: PlanJson,
) -> None:
    found = plan_json("qwen2.5vl-7b", "--suggest", "--npus", "8")[1]["suggestions"]
    assert (1, 1, 8) not in [_layout(one) for one in found]
    shipped_before = [one for one in found if _layout(one) == (1, 4, 2)]  # 2.0.0 and 2.1.0
    assert shipped_before[0]["relative_speed"] > 0.9


def test_the_32b_on_16_npus_offers_the_shipped_sizes(plan_json: PlanJson) -> None:
    words = settings("tuning.mode=full")
    found = plan_json("qwen2.5vl-32b", "--suggest", "--npus", "16", *words)[1]["suggestions"]
    assert all(one["fits"] for one in found)
    shipped = [one for one in found if _layout(one) == (2, 8, 1)]
    assert shipped[0]["relative_speed"] > 0.7
    assert shipped[0]["set"]["parallel.vision_layers"] == [32] + [0] * 7


def test_the_72b_on_32_npus_avoids_the_shipped_layout_that_is_tight(plan_json: PlanJson) -> None:
    printed = plan_json("qwen2.5vl-72b", "--suggest", "--npus", "32")[1]
    assert (printed["profile"]["fits"], printed["profile"]["may_fit"]) == (False, True)
    assert _layout(printed["profile"]) == (2, 8, 2)
    assert all(one["fits"] for one in printed["suggestions"])
    sizes = [one["tp"] * one["pp"] for one in printed["suggestions"]]
    assert all(size in (16, 32) for size in sizes)


def test_the_72b_on_twice_as_many_npus_gets_the_shipped_sizes(plan_json: PlanJson) -> None:
    found = plan_json("qwen2.5vl-72b", "--suggest", "--npus", "64")[1]["suggestions"]
    assert (2, 8, 4) in [_layout(one) for one in found if one["fits"]]


def test_the_3b_stays_on_one_npu_a_copy(plan_json: PlanJson) -> None:
    first = plan_json("qwen2.5vl-3b", "--suggest", "--npus", "8")[1]["suggestions"][0]
    assert _layout(first) == (1, 1, 8)


@pytest.mark.parametrize("model", ["qwen2.5vl-7b", "qwen2.5vl-72b", "qwen2vl-2b"])
def test_every_proposal_keeps_the_rules_of_a_profile(load: Load, model: str) -> None:
    profile = load(model)
    for one in suggest(profile, 32, 64 * GIB):
        assert not list(check_profile(one.profile))
        assert one.profile.parallel.text.total == profile.architecture.text.layers
        assert one.profile.world_size == 32


def test_the_next_command_plans_the_first_proposal(
    plan_json: PlanJson, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = plan_json("qwen2.5vl-72b", "--suggest", "--npus", "32")[1]
    words = shlex.split(printed["next"])
    assert words[0] == "taskpack"
    assert main([*words[1:], "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    first = printed["suggestions"][0]
    assert _layout(planned) == _layout(first)
    assert max(stage["total"] for stage in planned["memory"]) == first["memory"]["total"]


def test_small_npus_get_more_stages_or_recompute(plan_json: PlanJson) -> None:
    large, small = (
        plan_json("qwen2.5vl-7b", "--suggest", "--npus", "8", "--hbm", hbm)[1]["suggestions"][0]
        for hbm in ("64", "32")
    )
    assert small["tp"] * small["pp"] > large["tp"] * large["pp"]
    assert small["memory"]["high"] <= 32 * GIB < large["memory"]["high"]


def test_long_sequences_are_shared_by_context_parallel(plan_json: PlanJson) -> None:
    words = settings(
        "train.seq_length=131072", "architecture.text.max_positions=131072", "data.media=none",
        "batch.accumulation=1",
    )  # fmt: skip
    found = plan_json("qwen2.5vl-72b", "--suggest", "--npus", "128", *words)[1]["suggestions"]
    assert found[0]["cp"] > 1
    assert found[0]["set"]["train.recompute"] == "full"


def test_a_model_that_fits_nowhere_names_a_number_of_npus(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-72b", "--suggest", "--npus", "8")
    assert code == 1
    assert printed["errors"][0]["what"] == "no layout of qwen2.5vl-72b fits on 8 NPUs of 64 GiB"
    assert printed["errors"][0]["fix"] == "use 32 NPUs, or tuning.mode: lora"
    assert plan_json("qwen2.5vl-72b", "--suggest", "--npus", "32")[0] == 0


def test_the_text_names_the_profile_beside_the_proposals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "qwen2.5vl-7b", "--suggest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split()[0] for line in lines[3:9]]
    assert starts == ["own", "1", "2", "3", "4", "5"]
    assert "  1  text [15, 13]; 15.9 GiB to spare;" in "\n".join(lines)


def test_stages_of_one_cost_leave_no_unevenness(load: Load) -> None:
    profile = load("qwen2.5vl-7b", "parallel.text_layers=[15, 13]")
    first, second = stage_costs(profile)
    assert first == pytest.approx(second, rel=0.1)
    measured = speed(profile)
    slowest = max(first, second)
    assert measured.unevenness == pytest.approx(slowest / ((first + second) / 2) - 1)
    assert measured.bubble == pytest.approx(1 - 48 * slowest / (47 * slowest + first + second))


def test_tensor_parallel_costs_what_was_published_for_the_7b(load: Load) -> None:
    one, two = (speed(load("qwen2.5vl-7b", f"parallel.tp={tp}")) for tp in (1, 2))
    # TP 2 has half the copies, so each does twice the micro batches: waiting cancels nearly out
    assert two.samples / one.samples == pytest.approx(0.551, rel=0.02)


def test_proposals_refuse_what_belongs_to_one_layout(plan_json: PlanJson) -> None:
    code, printed = plan_json("qwen2.5vl-7b", "--suggest", "--data", "rows.json")
    assert code == 2
    assert printed["errors"][0]["what"] == "--suggest does not look at --data"
