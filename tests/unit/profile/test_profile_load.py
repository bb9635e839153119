"""Loading: defaults, overrides, types, places, and all faults at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel
from taskpack.errors import ProfileError
from taskpack.profile import Profile, load_profile, profile_from_dict, to_yaml

Edit = Callable[[dict[str, str]], Path]


def fault(path: Path, *overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load_profile(path, overrides)
    return str(caught.value)


def test_the_32b_profile_loads_with_its_seed_values(load: Callable[..., Profile]) -> None:
    profile = load()
    assert profile.title == "Qwen2.5-VL-32B-Instruct"
    assert (profile.parallel.tp, profile.parallel.pp, profile.parallel.vpp) == (2, 8, 1)
    assert profile.parallel.text.to_lists() == [4, 9, 9, 9, 9, 9, 9, 6]
    assert profile.parallel.vision.to_lists() == [32, 0, 0, 0, 0, 0, 0, 0]
    assert (profile.model_parallel_size, profile.world_size, profile.least_nodes) == (16, 16, 2)
    assert (profile.dp, profile.accumulation, profile.global_batch) == (1, 96, 96)
    assert profile.tuning.lora.targets == ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    assert not profile.needs_dummy_optimizer


def test_a_profile_cannot_change(load: Callable[..., Profile]) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().train.lr = 1.0


def test_only_what_has_no_sane_default_is_required(load: Callable[..., Profile]) -> None:
    data = load().model_dump(by_alias=True)
    del data["tuning"], data["resume"]
    data["train"] = {"iters": 10, "lr": 1e-5}
    data["data"] = {"files": ["x.json"]}
    data["batch"] = {"accumulation": 4}
    profile = profile_from_dict(data, where="test")
    assert (profile.tuning.mode, profile.train.freeze) == ("lora", ("vision", "projector"))
    assert (profile.batch.micro, profile.resume.iteration) == (1, None)


def test_data_that_python_made_may_hold_lists(load: Callable[..., Profile]) -> None:
    data = load().model_dump(mode="json", by_alias=True)
    assert profile_from_dict(data, where="test") == load()


def test_written_yaml_is_read_by_the_strict_loader(
    load: Callable[..., Profile], tmp_path: Path
) -> None:
    profile = load("platform.env.SWITCH='on'", "platform.env.COUNT='010'", "train.lr=3e-7")
    path = tmp_path / "copy.yaml"
    path.write_text(to_yaml(profile), encoding="utf-8")
    assert load_profile(path) == profile


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("train.lr=2e-5", lambda p: p.train.lr == 2e-5),
        ("train.lr= 1", lambda p: p.train.lr == 1),
        ("parallel.text_layers=[1, 9, 9, 9, 9, 9, 9, 9]", lambda p: p.parallel.text_layers[0] == 1),
        ("data.files=[a.json, b.json]", lambda p: p.data.joined_files == "a.json,b.json"),
        ("data.max_samples=null", lambda p: p.data.max_samples is None),
        ("platform.env.NEW=5", lambda p: p.platform.env["NEW"] == "5"),
        ("platform.env.FLAG=true", lambda p: p.platform.env["FLAG"] == "true"),
        ("resume.iteration=latest", lambda p: p.resume.iteration == "latest"),
        ("resume.iteration=40", lambda p: p.resume.iteration == 40),
    ],
)
def test_an_override_replaces_one_value(
    override: str, read: Callable[[Profile], bool], load: Callable[..., Profile]
) -> None:
    assert read(load(override))


def test_later_overrides_win(load: Callable[..., Profile]) -> None:
    assert load("train.seed=1", "train.seed=2").train.seed == 2


def test_a_global_batch_gives_the_accumulation(load: Callable[..., Profile]) -> None:
    profile = load(
        "batch.accumulation=null", "batch.global=64", "platform.nodes=4", "batch.micro=2"
    )
    assert (profile.dp, profile.accumulation, profile.global_batch) == (2, 16, 64)


def test_unknown_key_names_the_nearest_and_the_line(edit: Edit) -> None:
    assert fault(edit({"  cp: 1": "  ccp: 1"})) == (
        "error: the key parallel.ccp is not known\n"
        "  where: tasks/qwen2.5vl-32b/profile.yaml:47 (parallel.ccp)\n"
        "  why:   a misspelt key would silently do nothing\n"
        "  fix:   did you mean 'cp'?"
    )


def test_unknown_section_names_the_nearest(edit: Edit) -> None:
    lines = fault(edit({"\nbatch:\n": "\nbatches:\n"})).splitlines()
    assert "error: the key batches is not known" in lines
    assert "  fix:   did you mean 'batch' or 'paths'?" in lines
    assert "error: the key batch is missing" in lines


def test_a_missing_key_says_what_it_means(edit: Edit) -> None:
    text = fault(edit({"  lr: 1.0e-5\n": ""}))
    assert text == (
        "error: the key train.lr is missing\n"
        "  where: tasks/qwen2.5vl-32b/profile.yaml:53 (train.lr)\n"
        "  why:   it has no value that suits every task\n"
        "  fix:   add it: highest learning rate"
    )


def test_five_faults_are_reported_at_once(edit: Edit) -> None:
    path = edit(
        {
            "  cp: 1": "  ccp: 1",
            "  tp: 2 ": "  tp: 3 ",
            "[4, 9, 9, 9, 9, 9, 9, 6]": "[3, 9, 9, 9, 9, 9, 9, 6]",
            "  micro: 1 ": "  micro: two ",
            "  save_interval: 5000 ": "  save_interval: 0 ",
        }
    )
    whats = [line for line in fault(path).splitlines() if line.startswith("error: ")]
    assert [what for what in whats if "NPUs" not in what] == [
        "error: the key parallel.ccp is not known",
        "error: batch.micro cannot be 'two'",
        "error: train.save_interval cannot be 0",
        "error: text_layers [3, 9, 9, 9, 9, 9, 9, 6] holds 63 layers, "
        "Qwen2.5-VL-32B-Instruct has 64",
        "error: parallel.tp 3 does not divide the 8 query groups and the 16 vision heads of "
        "Qwen2.5-VL-32B-Instruct",
    ]


@pytest.mark.parametrize(
    ("override", "what", "fix"),
    [
        ("batch.micro=1.5", "batch.micro cannot be 1.5", "give a whole number"),
        ("batch.micro=true", "batch.micro cannot be true", "give a whole number"),
        ("train.iters=010", "train.iters cannot be '010'", "give a whole number"),
        ("train.lr=fast", "train.lr cannot be 'fast'", "give a number"),
        ("train.lr=0", "train.lr cannot be 0", "give a number greater than 0"),
        ("train.lr=1e999", "train.lr cannot be inf", "give a finite number"),
        ("train.warmup_fraction=2", "train.warmup_fraction cannot be 2", "give a number up to 1"),
        ("train.weight_decay=-1", "train.weight_decay cannot be -1", "give a number from 0 up"),
        ("tuning.lora.dropout=1", "tuning.lora.dropout cannot be 1", "give a number below 1"),
        ("train.log_interval=0", "train.log_interval cannot be 0", "give a number greater than 0"),
        (
            "train.eval_interval=0",
            "train.eval_interval cannot be 0",
            "give a number greater than 0",
        ),
        (
            "platform.npus_per_node=17",
            "platform.npus_per_node cannot be 17",
            "give a number up to 16",
        ),
        ("platform.device=A4", "platform.device cannot be 'A4'", "use one of: A2, A3"),
        ("tuning.mode=lorra", "tuning.mode cannot be 'lorra'", "did you mean 'lora'?"),
        ("train.recompute=1", "train.recompute cannot be 1", "give none or full or selective"),
        ("train.freeze=[vison]", "train.freeze[0] cannot be 'vison'", "did you mean 'vision'?"),
        ("train.freeze=vision", "train.freeze cannot be 'vision'", "give a list, as in [a, b]"),
        (
            "family=qwen3_5_vl",
            "family cannot be 'qwen3_5_vl'",
            "did you mean 'qwen2_5_vl' or 'qwen2_vl'?",
        ),
        (
            "hf.dir=",
            "hf.dir cannot be empty",
            "give text, in quotes where it looks like something else",
        ),
        ("hf.dir=''", "hf.dir cannot be ''", "give text that is not empty"),
        (
            "release=26.1",
            "release cannot be 26.1",
            "give text, in quotes where it looks like something else",
        ),
        ("platform=5", "platform cannot be 5", "give a group of keys"),
        ("platform.env=5", "platform.env cannot be 5", "give a mapping of names to values"),
        ("resume.optimizer=yes", "resume.optimizer cannot be 'yes'", "give true or false"),
        ("resume.iteration=0", "resume.iteration cannot be 0", "give a step, latest or null"),
        (
            "parallel.text_layers=64",
            "parallel.text_layers cannot be 64",
            "give a list of layers per stage, as in [4, 9]",
        ),
        (
            "parallel.text_layers=[4, 9.5]",
            "parallel.text_layers cannot be [4, 9.5]",
            "give a list of layers per stage, as in [4, 9]",
        ),
        (
            "parallel.text_layers=[]",
            "parallel.text_layers cannot be []",
            "give one list per virtual stage, all of one length",
        ),
        (
            "parallel.text_layers=[[1, 2], [3]]",
            "parallel.text_layers cannot be [[1, 2], [3]]",
            "give one list per virtual stage, all of one length",
        ),
        (
            "architecture.text.mrope_section=[1, 2]",
            "architecture.text.mrope_section has only 2 values",
            "give the values that are missing",
        ),
        (
            "architecture.text.mrope_section=[1, 2, 3, 4]",
            "architecture.text.mrope_section cannot be [1, 2, 3, 4]",
            "give a list of 3 values",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(
    override: str, what: str, fix: str, edit: Edit
) -> None:
    lines = fault(edit({}), override).splitlines()
    assert lines[0] == f"error: {what}"
    assert lines[1].startswith(f"  where: --set {override} (")
    assert lines[2].startswith("  why:   ")
    assert lines[3] == f"  fix:   {fix}"


@pytest.mark.parametrize("override", ["train.lr", "=5", "a..b=1", ".a=1"])
def test_an_override_without_key_and_value_is_refused(override: str, edit: Edit) -> None:
    assert fault(edit({}), override) == (
        f"error: --set {override!r} names no key and value\n"
        f"  where: --set {override}\n"
        "  why:   an override replaces one value of the profile\n"
        "  fix:   write it as key.key=value, for example --set train.lr=2e-5"
    )


def test_an_override_of_an_unknown_section_names_the_option(edit: Edit) -> None:
    lines = fault(edit({}), "batches.micro=2").splitlines()
    assert lines[:2] == [
        "error: the key batches is not known",
        "  where: --set batches.micro=2 (batches)",
    ]


def test_an_override_below_a_value_is_refused(edit: Edit) -> None:
    text = fault(edit({}), "model.name=x")
    assert text.startswith("error: --set 'model.name=x' goes below 'model', which holds a value")


def test_an_override_that_is_not_yaml_is_refused(edit: Edit) -> None:
    text = fault(edit({}), "data.files=[a")
    assert text.splitlines()[1].startswith("  where: --set data.files=[a:1")


def test_a_missing_file_is_an_error_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "none" / "profile.yaml"
    assert fault(path) == (
        "error: there is no profile\n"
        f"  where: {path}\n"
        "  why:   a task is described by this file\n"
        "  fix:   copy another task's profile.yaml, or write one: taskpack profile from-hf"
    )


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_bytes(b"model: \xff\n")
    assert fault(path).startswith("error: byte 7 is not UTF-8\n")


def test_the_folder_must_bear_the_models_name(edit: Edit) -> None:
    assert fault(edit({"model: qwen2.5vl-32b\n": "model: other\n"})) == (
        "error: model 'other' lies in the folder 'qwen2.5vl-32b'\n"
        "  where: tasks/qwen2.5vl-32b/profile.yaml:7 (model)\n"
        "  why:   a task is found by the name of its folder\n"
        "  fix:   rename the folder to other, or set model: qwen2.5vl-32b"
    )


def test_faults_of_plain_data_name_the_data(load: Callable[..., Profile]) -> None:
    data = {**load().model_dump(by_alias=True), "modle": 1}
    with pytest.raises(ProfileError) as caught:
        profile_from_dict(data, where="the narrow twin")
    assert caught.value.where == "the narrow twin (modle)"


def sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    below = [field.annotation for field in model.model_fields.values()]
    found = [model]
    for part in below:
        if isinstance(part, type) and issubclass(part, BaseModel):
            found += sections(part)
    return found


def test_every_key_says_what_it_means() -> None:
    for section in sections(Profile):
        for name, field in section.model_fields.items():
            assert field.description and field.description.endswith((".", "`.")), (section, name)


def test_an_override_of_the_global_batch_replaces_the_accumulation(
    load: Callable[..., Profile],
) -> None:
    assert load("batch.global=48").accumulation == 48
    assert load("batch.global=48", "batch.accumulation=null").global_batch == 48
