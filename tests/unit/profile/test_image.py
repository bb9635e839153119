"""What a container image is built from."""

from __future__ import annotations

from pathlib import Path

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import load_release, release_names
from taskpack.profile.image import build_arguments, describe_image, main

REPO = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


# as the install guide of each release and torch_npu's table of versions say
VERSIONS = {
    "2.1.0": ("8.2.rc1", "2.6.0", "2.6.0", "core_r0.8.0", "077c4137"),
    "2.2.0": ("8.3.rc1", "2.7.1", "2.7.1", "core_v0.12.1", "5176c6f5"),
    "2.3.0": ("8.5.0", "2.7.1", "2.7.1.post2", "core_v0.12.1", "93c45456"),
    "26.0.0": ("9.0.0", "2.7.1", "2.7.1.post4", "core_v0.12.1", "69f41000"),
    "26.1.0": ("9.1.0", "2.7.1", "2.7.1.post8", "core_v0.12.1", "69f41000"),
}


@pytest.mark.parametrize("release", release_names())
def test_a_release_says_every_version_of_its_image(release: str) -> None:
    cann, torch, torch_npu, megatron, mindspeed = VERSIONS[release]
    facts = build_arguments(load_release(release), "910b", "qwen2_5_vl")
    assert facts["BASE_IMAGE"] == f"ascendai/cann:{cann}-910b-ubuntu22.04-py3.11"
    assert (facts["TORCH_VERSION"], facts["TORCH_NPU_VERSION"]) == (torch, torch_npu)
    assert (facts["MEGATRON_TAG"], facts["MINDSPEED_COMMIT"]) == (megatron, mindspeed)
    assert facts["MINDSPEED_MM_COMMIT"] == load_release(release).commit


def test_every_argument_of_the_dockerfile_that_has_no_default_is_given() -> None:
    lines = (REPO / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bare = {line.split()[1] for line in lines if line.startswith("ARG ") and "=" not in line}
    facts = build_arguments(load_release("26.1.0"), "a3", "qwen2_5_vl")
    assert {name for name in bare if not name.startswith("PIP_")} == set(facts)


def test_a_model_names_its_image() -> None:
    assert describe_image("qwen2.5vl-32b", "", "", "")["IMAGE"] == (
        "taskpack:26.1.0-910b-qwen2_5_vl"
    )
    facts = describe_image("qwen2vl-72b", "", "", "")
    assert facts["IMAGE"] == "taskpack:26.0.0-a3-qwen2_vl"
    assert facts["MINDSPEED_COMMIT"] == "5176c6f5"


def test_a_word_that_is_given_wins_over_the_profile() -> None:
    facts = describe_image("qwen2.5vl-32b", "2.3.0", "a3", "qwen2_vl")
    assert facts["IMAGE"] == "taskpack:2.3.0-a3-qwen2_vl"
    assert facts["MINDSPEED_COMMIT"] == "5176c6f5"


def test_the_words_become_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["", "26.1.0", "a3", ""]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "IMAGE=taskpack:26.1.0-a3-qwen2_5_vl"
    assert lines[1] == "BASE_IMAGE=ascendai/cann:9.1.0-a3-ubuntu22.04-py3.11"


def test_an_unknown_release_ends_with_the_code_of_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["", "26.1", "a3", ""]) == 2
    assert capsys.readouterr().err.startswith("error: release '26.1' of MindSpeed-MM")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("", "26.1.0", "A2", ""),
            "error: chip 'A2' has no image\n"
            "  where: --chip\n"
            "  why:   CANN is built for one generation of NPUs\n"
            "  fix:   use 910b (A2) or a3 (A3)",
        ),
        (
            ("", "26.1.0", "910b", "qwen2_vl"),
            "error: release 26.1.0 has no example of the family 'qwen2_vl'\n"
            "  where: --family\n"
            "  why:   each family is tested with a MindSpeed commit of its own\n"
            "  fix:   use release 2.1.0 or 2.2.0 or 2.3.0 or 26.0.0",
        ),
        (
            ("", "26.1.0", "910b", "qwen2_5vl"),
            "error: release 26.1.0 has no example of the family 'qwen2_5vl'\n"
            "  where: --family\n"
            "  why:   each family is tested with a MindSpeed commit of its own\n"
            "  fix:   did you mean 'qwen2_5_vl'?",
        ),
        (
            ("", "26.1.0", "", ""),
            "error: the image has no chip\n"
            "  where: command line\n"
            "  why:   an image is built for one MindSpeed-MM release and one generation of NPUs\n"
            "  fix:   give --model, or --release (2.1.0, 2.2.0, 2.3.0, 26.0.0, 26.1.0)"
            " and --chip (910b, a3)",
        ),
    ],
)
def test_what_has_no_image_is_refused(words: tuple[str, str, str, str], message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        describe_image(*words)
    assert str(caught.value) == message
