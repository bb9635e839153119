"""What a container image of a MindSpeed-MM release is built from.

`docker/build.sh` and `docker/run.sh` ask for it, so that no version is typed in a Dockerfile:

    python3 -m taskpack.profile.image MODEL RELEASE CHIP FAMILY

Each word may be empty. A model's profile settles the other three; a word that is given wins. The
answer is one `NAME=value` a line: `IMAGE`, then the arguments of the build.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from taskpack.errors import ProfileError, TaskpackError, nearest
from taskpack.paths import task_dir
from taskpack.profile.load import load_profile
from taskpack.profile.releases import Release, load_release, release_names, releases_of

CHIPS = {"A2": "910b", "A3": "a3"}
"""Name that CANN's image tags have for each generation of the NPU."""

REPOSITORY = "ascendai/cann"
SYSTEM = "ubuntu22.04"
DEFAULT_FAMILY = "qwen2_5_vl"


def image_name(release: str, chip: str, family: str) -> str:
    """Name the image; MindSpeed's commit belongs to the family, so that is in the tag."""
    return f"taskpack:{release}-{chip}-{family}"


def build_arguments(release: Release, chip: str, family: str) -> dict[str, str]:
    """Give the arguments of the Dockerfile.

    Raises:
        ProfileError: The chip is not known, or the release has no example of the family.
    """
    if chip not in CHIPS.values():
        raise ProfileError(
            f"chip {chip!r} has no image",
            where="--chip",
            why="CANN is built for one generation of NPUs",
            fix="use " + " or ".join(f"{name} ({npu})" for npu, name in CHIPS.items()),
        )
    if family not in release.mindspeed:
        known = " or ".join(releases_of(family))
        raise ProfileError(
            f"release {release.name} has no example of the family {family!r}",
            where="--family",
            why="each family is tested with a MindSpeed commit of its own",
            fix=f"use release {known}" if known else nearest(family, release.mindspeed),
        )
    pins = release.pins_for(family)
    tag = f"{pins['cann'].lower()}-{chip}-{SYSTEM}-py{pins['image_python']}"
    return {
        "BASE_IMAGE": f"{REPOSITORY}:{tag}",
        "CHIP": chip,
        "TORCH_VERSION": pins["torch"],
        "TORCH_NPU_VERSION": pins["torch_npu_wheel"],
        "TRANSFORMERS_VERSION": pins["transformers"],
        "MINDSPEED_MM_RELEASE": release.name,
        "MINDSPEED_MM_COMMIT": release.commit,
        "MEGATRON_TAG": pins["megatron"],
        "MINDSPEED_COMMIT": pins["mindspeed"],
    }


def describe_image(model: str, release: str, chip: str, family: str) -> dict[str, str]:
    """Settle what an image is for, then name it and its arguments; empty words are not given.

    Raises:
        ProfileError: A word is not known, or release and chip are neither given nor a profile's.
    """
    if model:
        profile = load_profile(task_dir(model) / "profile.yaml")
        release = release or profile.release
        chip = chip or CHIPS[profile.platform.device]
        family = family or profile.family
    if not release or not chip:
        raise ProfileError(
            f"the image has no {'release' if not release else 'chip'}",
            where="command line",
            why="an image is built for one MindSpeed-MM release and one generation of NPUs",
            fix=f"give --model, or --release ({', '.join(release_names())}) and --chip (910b, a3)",
        )
    family = family or DEFAULT_FAMILY
    arguments = build_arguments(load_release(release), chip, family)
    return {"IMAGE": image_name(release, chip, family), **arguments}


def main(words: Sequence[str]) -> int:
    """Print the description of an image; return the exit code."""
    model, release, chip, family = words
    try:
        facts = describe_image(model, release, chip, family)
    except TaskpackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("\n".join(f"{name}={value}" for name, value in facts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
