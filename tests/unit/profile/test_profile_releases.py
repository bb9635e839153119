"""Facts per release."""

from __future__ import annotations

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import known_flags, load_release, release_names
from taskpack.profile.releases import releases_of


def test_releases_are_listed_oldest_first() -> None:
    assert release_names() == ("2.1.0", "2.2.0", "2.3.0", "26.0.0", "26.1.0")


@pytest.mark.parametrize(
    ("release", "count"),
    [("2.1.0", 539), ("2.2.0", 661), ("2.3.0", 675), ("26.0.0", 709), ("26.1.0", 709)],
)
def test_every_flag_of_a_release_is_known(release: str, count: int) -> None:
    assert len(known_flags(release)) == count


@pytest.mark.parametrize("release", release_names())
def test_a_release_knows_what_its_shipped_script_passes(release: str) -> None:
    facts = load_release(release)
    passed = {flag for flags in facts.passes_also.values() for flag in flags}
    assert passed <= set(facts.flags)
    assert set(facts.passes_also) == set(facts.mindspeed)


def test_a_flag_says_what_it_accepts() -> None:
    flags = known_flags("26.1.0")
    assert (flags["--bf16"].switch, flags["--bf16"].takes_value) == (True, False)
    assert (flags["--lr"].type, flags["--lr"].nargs) == ("float", None)
    assert (flags["--lora-target-modules"].type, flags["--lora-target-modules"].nargs) == (
        "str",
        "+",
    )
    assert flags["--distributed-backend"].choices == ("nccl", "gloo")
    assert flags["--no-gradient-accumulation-fusion"].switch


def test_the_checkpoint_format_came_with_core_0_12() -> None:
    assert "--ckpt-format" not in known_flags("2.1.0")
    assert "--ckpt-format" in known_flags("2.2.0")


def test_the_mindspeed_pin_belongs_to_the_model() -> None:
    release = load_release("2.3.0")
    assert release.pins_for("qwen2_5_vl")["mindspeed"] == "93c45456"
    assert release.pins_for("qwen2_vl")["mindspeed"] == "5176c6f5"
    assert release.pins_for("qwen2_vl")["cann"] == "8.5.0"


def test_a_variant_may_have_a_pin_of_its_own() -> None:
    release = load_release("2.2.0")
    assert release.pins_for("qwen2_5_vl")["mindspeed"] == "5176c6f5"
    assert release.pins_for("qwen2_5_vl", fsdp2=True)["mindspeed"] == "cecf0dcc"
    newer = load_release("2.3.0")
    assert newer.pins_for("qwen2_5_vl", fsdp2=True)["mindspeed"] == "93c45456"


def test_releases_of_a_family_are_those_with_an_example() -> None:
    assert releases_of("qwen2_5_vl") == release_names()
    assert releases_of("qwen2_vl") == ("2.1.0", "2.2.0", "2.3.0", "26.0.0")


def test_an_unknown_release_names_the_nearest() -> None:
    with pytest.raises(ProfileError) as caught:
        load_release("26.1")
    assert str(caught.value) == (
        "error: release '26.1' of MindSpeed-MM is not known\n"
        "  where: --release\n"
        "  why:   flags and files differ between releases\n"
        "  fix:   did you mean '26.1.0' or '2.1.0' or '26.0.0'?"
    )
