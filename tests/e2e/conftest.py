"""One rehearsal per tuning, shared by the tests that look at its results."""

from __future__ import annotations

import pytest
from rehearsal_runs import Rehearsal, run_rehearsal


@pytest.fixture(scope="session")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return run_rehearsal(tmp_path_factory.mktemp("lora"), tuning="lora")


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return run_rehearsal(tmp_path_factory.mktemp("full"), tuning="full")
