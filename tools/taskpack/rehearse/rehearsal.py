"""`taskpack rehearse`: from a model's name to a verdict."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from taskpack.errors import HostError, ProfileError
from taskpack.paths import task_dir
from taskpack.profile import Profile, load_profile
from taskpack.rehearse.engine_seam import CpuEngine, Engine
from taskpack.rehearse.outcome import Check, Outcome
from taskpack.rehearse.report import write_report
from taskpack.rehearse.runner import ROUND_TRIP, Sources, Stage, describe, run_scripts
from taskpack.rehearse.twin import Wishes, narrow

FROZEN_PREFIXES = {
    "vision": ("visual.patch_embed.", "visual.blocks."),
    "projector": ("visual.merger.",),
}
USER_SEQ_LENGTH = 1024
PACKAGES = ("torch", "transformers", "peft", "tokenizers", "safetensors", "PIL")


@dataclass(frozen=True, slots=True)
class Order:
    """What is rehearsed, and what of it is kept."""

    model: str
    overrides: Sequence[str] = ()
    sources: Sources = field(default_factory=Sources)
    steps: int | None = None
    report: Path | None = None
    keep: Path | None = None


def rehearse(order: Order, *, out: TextIO, engine: Engine | None = None) -> Outcome:
    """Run a task end to end with a narrow copy of its model.

    Args:
        order: What to do.
        out: Where progress is shown.
        engine: What trains; by default this host's CPU.

    Raises:
        ProfileError: The profile or an option is wrong.
        HostError: A script failed, or something is not installed.
    """
    started = time.perf_counter()
    require_packages("rehearse", PACKAGES)
    chosen = engine or CpuEngine()
    profile = load_profile(task_dir(order.model) / "profile.yaml", order.overrides)
    tuning = _tuning(profile)
    own_rows = order.sources.data is not None
    wishes = Wishes(tuning, order.steps, *([USER_SEQ_LENGTH] if own_rows else []))
    twin = narrow(profile, wishes)
    outcome = Outcome(profile.model, tuning, chosen.name, chosen.limits)
    describe(outcome, profile, twin)
    with _scratch(order.keep, out) as checkout:
        stage = Stage(checkout, twin, tuning=tuning, outcome=outcome, out=out)
        try:
            stage.build(order.sources, chosen)
            run_scripts(stage, tuning=tuning)
            stage.say("== checks")
            with warnings.catch_warnings():
                # Of transformers' and peft's own future; nobody who rehearses can act on them.
                warnings.simplefilter("ignore", FutureWarning)
                for check in run_checks(stage, chosen, tuning=tuning):
                    outcome.checks.append(check)
        finally:
            outcome.seconds = time.perf_counter() - started
            if order.report is not None:
                write_report(outcome, order.report)
    return outcome


def require_packages(extra: str, modules: Sequence[str]) -> None:
    """Tell at once which packages of an optional part are not installed.

    Raises:
        HostError: At least one is missing.
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise HostError(
            f"this Python has no {', '.join(missing)}",
            where=sys.executable,
            why=f"they belong to the optional part {extra!r} of taskpack",
            fix=f"pip install 'taskpack[{extra}]'",
        )


def _tuning(profile: Profile) -> str:
    tuning = os.environ.get("TUNING") or profile.tuning.mode
    if tuning not in ("lora", "full"):
        raise ProfileError(
            f"TUNING is {tuning!r}",
            where="environment",
            why="it selects what is trained",
            fix="use full or lora, or unset it to follow tuning.mode of the profile",
        )
    return tuning


@contextmanager
def _scratch(keep: Path | None, out: TextIO) -> Iterator[Path]:
    """Give a folder that goes when all went well; after a failure it stays and is named."""
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise HostError(
                f"{keep} is not empty",
                where=str(keep),
                why="a rehearsal builds its own checkout there",
                fix="name a new folder",
            )
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="taskpack-rehearse-"))
    try:
        yield folder
    except HostError:
        print(f"the scratch checkout is kept: {folder}", file=out)
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def run_checks(stage: Stage, engine: Engine, *, tuning: str) -> Iterator[Check]:
    """Test the results, each check on its own."""
    from taskpack.rehearse import model_checks, weights_checks

    twin = stage.twin
    base, round_trip = stage.path(twin.hf.dir), stage.path(ROUND_TRIP)
    export, trained = stage.path(twin.paths.export), engine.trained_dir(stage.checkout)
    yield weights_checks.check_accounted(
        stage.path(twin.paths.mm),
        base,
        round_trip,
        rank_files=twin.parallel.tp * twin.parallel.pp,
    )
    yield weights_checks.check_round_trip(base, round_trip)
    probe = model_checks.make_probe(stage.checkout, stage.task)
    yield model_checks.check_loss(
        base, export, probe, losses=stage.outcome.losses, steps=twin.train.iters
    )
    if tuning == "full" and trained is not None:
        frozen = tuple(prefix for part in twin.train.freeze for prefix in FROZEN_PREFIXES[part])
        yield weights_checks.check_full_export(base, trained, export, frozen=frozen)
    elif trained is not None:
        targets = weights_checks.adapted_weights(trained)
        yield weights_checks.check_untouched(base, export, targets=targets)
        yield model_checks.check_merge(base, trained, export, probe)
    yield model_checks.check_loads(export, probe)
