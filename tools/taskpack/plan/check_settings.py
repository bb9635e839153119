"""Settings that the release knows, but that do not go together: loading of rows, resuming."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from taskpack.plan.findings import Check
from taskpack.profile import Profile

_STREAMING_SAMPLER = "stateful_distributed_sampler"
_AT = "extra.data_json"


def check_loader(profile: Profile) -> Iterator[Check]:
    """Hold keys of data.json that the profile adds against what the loader can do."""
    added = profile.extra.data_json
    basic = _below(added, "dataset_param", "basic_parameters")
    loader = _below(added, "dataloader_param")
    if basic.get("streaming") is True:
        yield from _streaming(profile, basic, loader)
    sampler = loader.get("sampler_type", "BaseRandomBatchSampler")
    if sampler == "BaseRandomBatchSampler" and loader.get("drop_last", True) is not True:
        yield Check(
            "loader",
            "fail",
            "drop_last is off with BaseRandomBatchSampler",
            where=f"{_AT}.dataloader_param.drop_last",
            why="this sampler cannot give a batch that is not full",
            fix="leave drop_last out",
        )


def _streaming(
    profile: Profile, basic: Mapping[str, Any], loader: Mapping[str, Any]
) -> Iterator[Check]:
    needs = {
        f"{_AT}.dataloader_param.sampler_type: {_STREAMING_SAMPLER}": (
            loader.get("sampler_type") == _STREAMING_SAMPLER
        ),
        "data.loader_workers: 0": profile.data.loader_workers == 0,
        "preprocess_on_fly left out": basic.get("preprocess_on_fly") is not True,
        "resume.iteration: null": profile.resume.iteration is None,
    }
    missing = [need for need, met in needs.items() if not met]
    if missing:
        yield Check(
            "loader",
            "fail",
            "streaming with settings that it does not go with",
            where=f"{_AT}.dataset_param.basic_parameters.streaming",
            why="streamed rows come through one process and one sampler, and cannot be skipped",
            fix="set " + ", ".join(missing),
        )


def check_resume(profile: Profile) -> Iterator[Check]:
    """Name what a resumed run forgets."""
    resume = profile.resume
    if resume.iteration is None:
        return
    lost = [name for name in ("optimizer", "rng") if not getattr(resume, name)]
    if lost:
        yield Check(
            "resume",
            "note",
            f"resumes from {resume.iteration} without {' and '.join(lost)}",
            where="resume",
            why="Adam starts from empty moments" if "optimizer" in lost
            else "random numbers start from the seed again",
            fix="set " + ", ".join(f"resume.{name}: true" for name in lost)
            + ", if the run that saved had it too",
        )  # fmt: skip


def _below(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = data.get(key)
        data = value if isinstance(value, dict) else {}
    return data
