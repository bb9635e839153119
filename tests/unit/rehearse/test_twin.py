from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from taskpack.errors import ProfileError
from taskpack.paths import task_dir
from taskpack.profile import Profile, load_profile, profile_from_dict
from taskpack.rehearse.twin import Wishes, narrow
from taskpack.render import render_task

WIDTHS = {
    "hidden_size", "ffn_hidden_size", "intermediate_size", "input_size", "mrope_section",
    "seq_length",
}  # fmt: skip


SETTING = re.compile(r': "\$\{[A-Z_]+:=')
MODULE = re.compile(r" +'(?:vision|text) \w+ +[\d,]+ +[\d,]+  (.*)'")
"""A line of the table of trainable parameters; its end says how the module trains."""


def rendered(profile: Profile, folder: Path) -> Path:
    render_task(profile, folder)
    return folder


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= leaves(item, f"{path}/{key}")
    return found


def test_scripts_differ_from_the_real_ones_in_settings_alone(
    profile: Profile, tmp_path: Path
) -> None:
    real = rendered(profile, tmp_path / "real")
    twin = rendered(narrow(profile, Wishes("lora")), tmp_path / "twin")
    names = sorted(path.relative_to(real) for path in real.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(twin) for path in twin.rglob("*") if path.is_file())
    changed = 0
    for name in names:
        if name.suffix != ".sh":
            continue
        before, after = ((folder / name).read_text().splitlines() for folder in (real, twin))
        assert len(before) == len(after), name
        for old, new in zip(before, after, strict=True):
            if module := MODULE.fullmatch(old):
                counted = MODULE.fullmatch(new)
                assert counted is not None and module[1] == counted[1]
            elif old != new and old.strip() not in profile.data.files:
                changed += 1
                assert SETTING.match(old), old
                assert old.partition(":=")[0] == new.partition(":=")[0]
    assert changed >= 5


def test_model_json_differs_in_widths_alone(profile: Profile, tmp_path: Path) -> None:
    real = rendered(profile, tmp_path / "real") / "model.json"
    twin = rendered(narrow(profile, Wishes("lora")), tmp_path / "twin") / "model.json"
    before, after = (leaves(json.loads(path.read_text())) for path in (real, twin))
    assert before.keys() == after.keys()
    changed = {key.rpartition("/")[2] for key in before if before[key] != after[key]}
    assert changed == WIDTHS


def test_layers_lists_heads_and_vocabulary_are_the_real_ones(profile: Profile) -> None:
    twin = narrow(profile, Wishes("lora"))
    for name in ("layers", "attention_heads", "query_groups", "vocab_size", "tied"):
        assert getattr(twin.architecture.text, name) == getattr(profile.architecture.text, name)
    assert twin.architecture.vision.layers == profile.architecture.vision.layers
    assert twin.parallel == profile.parallel
    assert twin.tuning == profile.tuning


def test_paths_stay_inside_the_checkout(profile: Profile) -> None:
    away = profile.model_copy(
        update={"paths": profile.paths.model_copy(update={"mm": "/shared/mm", "save": "/shared/s"})}
    )
    twin = narrow(away, Wishes("lora"))
    paths = [twin.hf.dir, twin.data.dir, twin.data.cache_dir, *twin.data.files]
    paths += [twin.paths.mm, twin.paths.save, twin.paths.merged, twin.paths.export]
    assert not [path for path in paths if Path(path).is_absolute() or ".." in path]


def test_a_resumed_run_is_rehearsed_from_its_start(profile: Profile) -> None:
    resumed = profile.model_copy(
        update={"resume": profile.resume.model_copy(update={"iteration": 5000})}
    )
    assert narrow(resumed, Wishes("lora")).resume.iteration is None


def test_many_nodes_become_the_fewest_that_hold_the_model(profile: Profile) -> None:
    wide = profile.model_copy(
        update={"platform": profile.platform.model_copy(update={"nodes": 64})}
    )
    twin = narrow(wide, Wishes("lora"))
    assert twin.platform.nodes == 2
    assert twin.global_batch == 4


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_narrow_widths_divide_by_tensor_parallel_ranks(profile: Profile, tp: int) -> None:
    wide = profile.model_copy(update={"parallel": profile.parallel.model_copy(update={"tp": tp})})
    text = narrow(wide, Wishes("lora")).architecture.text
    assert text.ffn_hidden_size % tp == 0
    assert text.hidden_size == text.attention_heads * text.head_dim
    assert sum(text.mrope_section) * 2 == text.head_dim


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"data": {"media": "videos"}}, "media videos cannot be rehearsed yet"),
        (
            {
                "hf": {"online": True},
                "parallel": {"tp": 8, "text_layers": (64,), "vision_layers": (32,)},
                "tuning": {"mode": "full"},
            },
            "weights without a conversion cannot be rehearsed yet",
        ),
    ],
)
def test_what_the_stand_in_cannot_do_is_refused_by_name(
    changes: dict[str, dict[str, Any]], what: str, profile: Profile
) -> None:
    data = profile.model_dump(mode="json", by_alias=True)
    for section, values in changes.items():
        data[section].update(values)
    with pytest.raises(ProfileError) as caught:
        narrow(profile_from_dict(data, where="asked"), Wishes("full"))
    assert str(caught.value).splitlines()[0] == f"error: {what}"


def test_another_family_is_refused_by_name() -> None:
    with pytest.raises(ProfileError, match="the family qwen2_vl cannot be rehearsed yet"):
        narrow(load_profile(task_dir("qwen2vl-2b") / "profile.yaml"), Wishes("full"))
