"""The trainer's command line, and how it follows the profile. What is shipped: test_parity."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import Profile, load_release
from taskpack.render.context import layout_lines, task_context
from taskpack.render.flags import Argument, argument_groups, lora_arguments

VPP2 = (
    "tuning.mode=full",
    "parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]",
    "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
)

FROZEN_STAGE = ("parallel.text_layers=[0, 13, 9, 9, 9, 9, 9, 6]",)
SHARED_SEQUENCES = ("parallel.cp=2", "platform.nodes=4")

Load = Callable[..., Profile]


def flags(profile: Profile) -> dict[str, tuple[str, ...]]:
    groups = argument_groups(profile, load_release(profile.release))
    arguments = [argument for group in groups for argument in group.arguments]
    assert len({argument.flag for argument in arguments}) == len(arguments)
    return {argument.flag: argument.words for argument in arguments}


def settings(profile: Profile) -> dict[str, str]:
    context = task_context(profile, load_release(profile.release))
    return {setting.name: setting.value for setting in context["settings"]}


def value_of(words: tuple[str, ...], profile: Profile) -> str | None:
    """Look a flag's value up where it is a setting of the script."""
    if not words:
        return None
    name = words[0].strip('"').removeprefix("$")
    known = {
        **settings(profile),
        "TP": str(profile.parallel.tp),
        "PP": str(profile.parallel.pp),
        "CP": str(profile.parallel.cp),
        "GLOBAL_BATCH_SIZE": str(profile.global_batch),
    }
    return known.get(name, name) if words[0].startswith('"$') else words[0]


def test_lora_adds_its_four_flags(load: Load) -> None:
    assert lora_arguments(load(), load_release("26.1.0")) == (
        Argument("--lora-r", ("8",)),
        Argument("--lora-alpha", ("16",)),
        Argument("--lora-dropout", ("0.0",)),
        Argument(
            "--lora-target-modules", ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
        ),
    )


def test_one_stage_needs_no_variable_lengths(load: Load) -> None:
    profile = load("parallel.text_layers=[64]", "parallel.vision_layers=[32]")
    assert "--variable-seq-lengths" not in flags(profile)


def test_virtual_stages_pass_their_flag(load: Load) -> None:
    assert flags(load(*VPP2))["--virtual-pipeline-model-parallel-size"] == ("2",)


@pytest.mark.parametrize("release", ["2.1.0", "26.1.0"])
def test_sharing_sequences_names_the_algorithm_on_every_release(release: str, load: Load) -> None:
    ring = (*SHARED_SEQUENCES, "parallel.cp_algo=megatron_cp_algo", f"release={release}")
    assert flags(load(*ring))["--context-parallel-algo"] == ("megatron_cp_algo",)
    passes = "--context-parallel-algo" in flags(load(f"release={release}"))
    assert passes == (release == "26.1.0")


def test_a_stage_that_trains_nothing_gets_a_dummy_optimizer(load: Load) -> None:
    assert "--enable-dummy-optimizer" not in flags(load())
    profile = load(*FROZEN_STAGE)
    assert "--enable-dummy-optimizer" in flags(profile)


OPTIMIZER_AND_RNG = {"--no-load-optim", "--no-load-rng", "--no-save-optim", "--no-save-rng"}


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        ([], OPTIMIZER_AND_RNG),
        (["resume.optimizer=true"], OPTIMIZER_AND_RNG - {"--no-save-optim"}),
        (
            ["resume.optimizer=true", "resume.rng=true"],
            {"--no-load-optim", "--no-load-rng"},
        ),
        (["resume.iteration=40"], OPTIMIZER_AND_RNG),
        (["resume.iteration=40", "resume.optimizer=true", "resume.rng=true"], set()),
    ],
)
def test_optimizer_state_is_loaded_only_from_an_own_checkpoint(
    overrides: list[str], kept: set[str], load: Load
) -> None:
    assert OPTIMIZER_AND_RNG & set(flags(load(*overrides))) == kept


@pytest.mark.parametrize(
    ("iteration", "loaded"), [("40", '"$RESUME_PATH"'), ("latest", '"$LOAD_PATH"')]
)
def test_resuming_loads_the_save_folder_and_keeps_the_base(
    iteration: str, loaded: str, load: Load
) -> None:
    profile = load(f"resume.iteration={iteration}")
    assert settings(profile)["LOAD_PATH"] == "save_dir"
    assert settings(profile)["BASE_PATH"] == "ckpt/mm_path/Qwen2.5-VL-32B-Instruct"
    assert flags(profile)["--load"] == (loaded,)
    assert "--ckpt-step" not in flags(profile)
    lora = lora_arguments(profile, load_release("26.1.0"))
    assert Argument("--load-base-model", ('"$BASE_PATH"',), ("resume", "iteration")) in lora


def test_a_start_from_converted_weights_has_no_base_of_its_own(load: Load) -> None:
    assert "BASE_PATH" not in settings(load())


def test_a_global_batch_is_a_setting_of_its_own(load: Load) -> None:
    assert "GLOBAL_BATCH_SIZE" not in settings(load())
    profile = load("batch.accumulation=null", "batch.global=64")
    assert settings(profile)["GLOBAL_BATCH_SIZE"] == "64"
    assert settings(profile)["GRAD_ACCUMULATION"] == "64"


@pytest.mark.parametrize("release", ["2.1.0", "2.2.0", "2.3.0", "26.0.0", "26.1.0"])
@pytest.mark.parametrize(
    "overrides", [(), VPP2, ("resume.iteration=40",), FROZEN_STAGE, SHARED_SEQUENCES]
)
def test_every_flag_is_known_to_the_release_and_so_is_its_value(
    release: str, overrides: tuple[str, ...], load: Load
) -> None:
    facts = load_release(release)
    profile = load(f"release={release}", *overrides)
    lora = {a.flag: a.words for a in lora_arguments(profile, facts)}
    converters = {"int": int, "float": float}
    for flag, words in {**flags(profile), **lora}.items():
        spec = facts.flags[flag]
        assert bool(words) == spec.takes_value, flag
        value = value_of(words, profile)
        assert not spec.choices or value in spec.choices, flag
        if spec.type in converters:
            converters[spec.type](value)


def test_a_flag_that_the_release_lacks_names_the_key_that_asks_for_it(load: Load) -> None:
    old = load_release("2.1.0")
    lacking = old.model_copy(update={"passes_also": {"qwen2_5_vl": ("--ckpt-format",)}})
    with pytest.raises(ProfileError) as caught:
        argument_groups(load(), lacking)
    assert str(caught.value).splitlines()[:3] == [
        "error: MindSpeed-MM 2.1.0 has no flag --ckpt-format",
        "  where: the profile's release",
        "  why:   the trainer stops at a flag that it does not know",
    ]


def test_layout_lines_are_those_of_the_layout_file(load: Load) -> None:
    profile = load("tuning.lora.canonical=true", "tuning.lora.targets=[q_proj]")
    assert layout_lines(profile) == (
        '  "family": "qwen2_5_vl",',
        '  "tp": 2,',
        '  "vision_tp": 2,',
        '  "text_layers": [4, 9, 9, 9, 9, 9, 9, 6],',
        '  "vision_layers": [32, 0, 0, 0, 0, 0, 0, 0],',
        '  "canonical": true,',
    )


def test_environment_variables_say_what_they_mean(load: Load) -> None:
    context = task_context(load("platform.env.OWN=1"), load_release("26.1.0"))
    comments = {variable.name: variable.comment for variable in context["environment"]}
    assert comments["HCCL_CONNECT_TIMEOUT"] == "seconds to wait for the other ranks to connect"
    assert comments["OWN"] == ""
    assert all(comment for name, comment in comments.items() if name != "OWN")
