"""The commands that come after a plan."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taskpack.profile import Profile


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what it does."""

    does: str
    command: str

    def to_json(self) -> dict[str, str]:
        """Give the step as plain data."""
        return {"does": self.does, "command": self.command}


def next_steps(
    profile: Profile,
    *,
    hf: Path | None = None,
    mm: Path | None = None,
    overrides: Sequence[str] = (),
) -> list[Step]:
    """List the commands from here to the tuned model, in the MindSpeed-MM checkout.

    Args:
        profile: The task.
        hf: Weights that are there already, as published.
        mm: Weights that are there already, converted.
        overrides: Values that the plan was made with but the profile does not have.
    """
    task, steps = f"tasks/{profile.model}", []
    if overrides:
        given = " ".join(f"--set {shlex.quote(item)}" for item in overrides)
        steps.append(
            Step("write the task with these values", f"taskpack render {profile.model} {given}")
        )
    source = _setting("HF_PATH", hf, profile.hf.dir)
    if hf is None and mm is None:
        steps.append(Step("get the weights", f"bash {task}/download_weights.sh"))
    if mm is None and not profile.hf.online:
        steps.append(Step("cut them for the ranks", f"{source}bash {task}/convert_hf_to_mm.sh"))
    steps.append(Step("look at every row", f"taskpack data check --task {task}"))
    hosts = "HOSTFILE=hosts " if profile.platform.nodes > 1 else ""
    where = f", on each of {profile.platform.nodes} nodes" if hosts else ""
    load = _setting("LOAD_PATH", mm, profile.paths.mm)
    launch = f"{hosts}{load}bash {task}/{profile.launcher}"
    steps.append(Step("see the launch and what it lacks", f"{launch} --dry-run"))
    steps.append(Step(f"train{where}", launch))
    if profile.tuning.mode == "lora":
        steps.append(Step("adapter into base", f"{load}bash {task}/merge_lora.sh"))
    steps.append(Step("back to Hugging Face form", f"{source}bash {task}/convert_mm_to_hf.sh"))
    return steps


def _setting(name: str, given: Path | None, usual: str) -> str:
    """Set a variable for a command where a folder is not the profile's."""
    if given is None or given == Path(usual):
        return ""
    return f"{name}={shlex.quote(str(given))} "
