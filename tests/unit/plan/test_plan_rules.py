"""Every rule that plan judges by: a value that breaks it, what it says, and the valid edge."""

from __future__ import annotations

import pytest
from layout_rules import LAYOUT, SHAPE
from planning import PlanJson, settings
from rule_case import Case
from run_rules import DATA, RUN, VARIANTS

CASES = {**LAYOUT, **SHAPE, **RUN, **VARIANTS, **DATA}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_broken_rule_says_what_and_its_valid_edge_passes(plan_json: PlanJson, case: Case) -> None:
    code, printed = plan_json(case.model, *settings(*case.bad.split("; ")))
    found = printed["errors"] if code == 2 else printed["checks"]
    said = [one for one in found if case.what in one["what"]]
    assert code == case.code
    assert said, [one["what"] for one in found]
    assert case.fix in said[0]["fix"]
    assert all(said[0][key] for key in ("where", "why"))
    assert plan_json(case.model, *settings(*case.edge.split("; ")))[0] == 0


def test_more_than_sixty_rules_are_tried() -> None:
    assert len(CASES) >= 60
