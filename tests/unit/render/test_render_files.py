"""What a profile renders to: the two json files, and everything that depends on a key."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import Profile, load_release, release_names
from taskpack.profile.rules_variants import STRUCTURE_FLAGS
from taskpack.render import rendered_pack, rendered_task
from taskpack.render.engine import number, templates_dir

Load = Callable[..., Profile]


def rendered_json(profile: Profile, name: str) -> Any:
    return json.loads(rendered_task(profile)[PurePosixPath(name)])


def script(profile: Profile) -> str:
    return rendered_task(profile)[PurePosixPath("finetune_qwen2_5_vl.sh")].decode()


@pytest.mark.parametrize("release", release_names())
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["tuning.mode=full", "train.recompute=selective", "train.freeze=[]"],
        ["train.recompute=full"],
        ["resume.iteration=40", "resume.optimizer=true"],
        ["data.max_samples=5", "data.files=[a.json, b.json]", "data.system_tag=system"],
    ],
)
def test_rendered_json_is_strict_json_and_names_no_key_twice(
    overrides: list[str], release: str, load: Load
) -> None:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in items}) == len(items)
        return dict(items)

    files = rendered_task(load(f"release={release}", *overrides))
    for name in ("model.json", "data.json"):
        json.loads(files[PurePosixPath(name)], object_pairs_hook=pairs)


def test_recompute_goes_into_the_parts_that_train(load: Load) -> None:
    full = {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }
    model = rendered_json(load("train.recompute=full"), "model.json")
    assert full.items() <= model["text_decoder"].items()
    assert "recompute_granularity" not in model["image_encoder"]["vision_encoder"]
    model = rendered_json(load("train.recompute=full", "train.freeze=[]"), "model.json")
    assert full.items() <= model["image_encoder"]["vision_encoder"].items()


def test_selective_recompute_has_no_layer_count(load: Load) -> None:
    profile = load("train.recompute=selective", "tuning.mode=full")
    text = rendered_json(profile, "model.json")["text_decoder"]
    assert [key for key in text if key.startswith("recompute")] == ["recompute_granularity"]


def test_freeze_sets_both_booleans(load: Load) -> None:
    encoder = rendered_json(load("train.freeze=[projector]"), "model.json")["image_encoder"]
    assert encoder["vision_encoder"]["freeze"] is False
    assert encoder["vision_projector"]["freeze"] is True


def test_a_canonical_profile_says_so_in_both_parts(load: Load) -> None:
    overrides = ["tuning.lora.canonical=true", "tuning.lora.targets=[q_proj]"]
    model = rendered_json(load(*overrides), "model.json")
    assert model["text_decoder"]["canonical_model"] is True
    assert model["image_encoder"]["vision_encoder"]["canonical_model"] is True


def test_several_data_files_are_joined_by_commas_without_spaces(load: Load) -> None:
    data = rendered_json(load("data.files=[./a.json, ./b.json]"), "data.json")
    assert data["dataset_param"]["basic_parameters"]["dataset"] == "./a.json,./b.json"


def test_virtual_stages_are_nested_lists(load: Load) -> None:
    profile = load(
        "tuning.mode=full",
        "parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]",
        "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
    )
    model = rendered_json(profile, "model.json")
    assert model["text_decoder"]["pipeline_num_layers"] == [[4, 9, 9, 9], [9, 9, 9, 6]]
    assert "VP_SIZE" in script(profile)


def test_the_same_profile_gives_the_same_bytes(load: Load) -> None:
    assert rendered_task(load()) == rendered_task(load())


def test_no_machine_reaches_a_rendered_file(load: Load) -> None:
    for path, content in {**rendered_task(load()), **rendered_pack()}.items():
        assert str(templates_dir().parent).encode() not in content, path
        assert not re.search(rb"20\d\d-\d\d-\d\d", content), path


def test_every_rendered_script_names_its_profile(load: Load) -> None:
    for path, content in rendered_task(load()).items():
        if path.suffix == ".sh" and path.parent.name != "lib":
            assert b"# Rendered from tasks/qwen2.5vl-32b/profile.yaml by taskpack" in content, path
            assert b"# Edit that file, then run: make render MODEL=qwen2.5vl-32b" in content, path


def test_shell_libraries_are_copied_verbatim(load: Load) -> None:
    files = rendered_task(load())
    sources = [path for path in (templates_dir() / "lib").iterdir() if path.is_file()]
    assert sources
    for source in sources:
        assert files[PurePosixPath("lib") / source.name] == source.read_bytes()


def test_what_python_leaves_beside_a_library_is_not_rendered(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = rendered_task(load())
    templates = shutil.copytree(templates_dir(), tmp_path / "templates")
    (templates / "lib" / "__pycache__").mkdir(exist_ok=True)
    (templates / "lib" / "__pycache__" / "check_shards.cpython-311.pyc").write_bytes(b"\0")
    monkeypatch.setattr("taskpack.render.files.templates_dir", lambda: templates)
    assert rendered_task(load()) == expected


def test_rendered_files_have_unix_line_ends_and_end_in_one(load: Load) -> None:
    for path, content in {**rendered_task(load()), **rendered_pack()}.items():
        assert b"\r" not in content, path
        assert content.endswith(b"\n") and not content.endswith(b"\n\n"), path


def test_editing_tp_changes_every_file_that_depends_on_it(load: Load) -> None:
    before, after = (rendered_task(load("platform.nodes=4", f"parallel.tp={tp}")) for tp in (2, 4))
    finetune = script(load("platform.nodes=4", "parallel.tp=4"))
    assert "readonly TP=4" in finetune
    assert '"tp": 4,' in finetune and '"vision_tp": 4,' in finetune
    changed = {path for path in before if before[path] != after[path]}
    assert PurePosixPath("finetune_qwen2_5_vl.sh") in changed
    kept = [content for path, content in after.items() if path not in changed]
    for content in kept:
        assert b"TP 2" not in content and b"TP=2" not in content and b'"tp": 2' not in content


def test_editing_the_layers_changes_model_json_and_the_layout_check(load: Load) -> None:
    profile = load("parallel.text_layers=[1, 9, 9, 9, 9, 9, 9, 9]")
    layers = [1, 9, 9, 9, 9, 9, 9, 9]
    text = rendered_json(profile, "model.json")["text_decoder"]
    assert text["pipeline_num_layers"] == layers
    assert f'"text_layers": {layers},' in script(profile)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1.0e-5"),
        (2.5e-7, "2.5e-7"),
        (1e16, "1.0e16"),
        (0.0, "0.0"),
        (0.1, "0.1"),
        (16, "16"),
        (1000000.0, "1000000.0"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value) == text
    assert float(text) == value


@pytest.mark.parametrize(
    ("override", "what"),
    [
        (
            "extra.model_json.text_decoder.num_layers=32",
            "text_decoder.num_layers is rendered already, as 64",
        ),
        (
            "extra.data_json.dataset_param.basic_parameters.cache_dir=/tmp",
            'dataset_param.basic_parameters.cache_dir is rendered already, as "./data/cache_dir"',
        ),
        ("extra.flags.--lr=1.0", '--lr is rendered already, as "$LR"'),
        ("extra.flags.--seed=43", "--seed is rendered already, as 42"),
    ],
)
def test_an_extra_value_cannot_contradict_the_profile(override: str, what: str, load: Load) -> None:
    with pytest.raises(ProfileError) as caught:
        rendered_task(load(override))
    assert str(caught.value).splitlines()[0] == f"error: {what}"


def test_an_extra_value_that_agrees_changes_nothing(load: Load) -> None:
    overrides = [
        "extra.flags.--seed=42",
        "extra.flags.--bf16=true",
        "extra.model_json.text_decoder.num_layers=64",
        "extra.model_json.text_decoder.pipeline_num_layers=[4, 9, 9, 9, 9, 9, 9, 6]",
    ]
    assert rendered_task(load(*overrides)) == rendered_task(load())


def test_constants_of_the_files_may_be_replaced(load: Load) -> None:
    data = rendered_json(load("extra.data_json.dataloader_param.shuffle=false"), "data.json")
    assert data["dataloader_param"]["shuffle"] is False
    assert data["dataloader_param"]["drop_last"] is True


def test_launchers_name_every_flag_that_model_json_replaces(load: Load) -> None:
    options = rendered_task(load())[PurePosixPath("lib/options.sh")].decode()
    block = options[options.index("case ${word%%=*}") : options.index("has no effect")]
    assert set(re.findall(r"--[a-z-]+", block)) == set(STRUCTURE_FLAGS)


@pytest.mark.parametrize("flag", STRUCTURE_FLAGS)
def test_a_structure_flag_is_one_of_some_release(flag: str) -> None:
    assert any(flag in load_release(name).flags for name in release_names())
