"""Facts per MindSpeed-MM release: versions, and every flag its trainer knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from taskpack.errors import ProfileError, nearest
from taskpack.paths import PACKAGE_DIR
from taskpack.profile._section import Section, freeze
from taskpack.profile.yaml_loader import read_yaml

_FOLDER = PACKAGE_DIR / "profile"


class FlagSpec(Section):
    """What a flag of the trainer accepts."""

    switch: bool = False
    """True when the flag takes no value."""

    type: Literal["int", "float", "str", "bool"] | None = None
    """Type of each value; null is text."""

    nargs: Literal["*", "+"] | None = None
    """Number of values when it is not one: any, or at least one."""

    choices: tuple[str, ...] = ()
    """The only values allowed; empty allows all."""

    required: bool = False
    """True when the trainer refuses to start without it."""

    @property
    def takes_value(self) -> bool:
        """True when words follow the flag."""
        return not self.switch


class ModelJson(Section):
    """What a release's model.json holds and another's does not."""

    video_token_id: int | None = None
    """Token id of a video place holder, where the release reads it."""

    projector_attention_heads: int | None = None
    """Attention heads of the projector, which has none; some releases want the key."""

    vision_attention_mask_type: str | None = None
    """Kind of mask that the vision encoder is told to use."""

    cp_projector_size: int | None = None
    """Context parallel size that keeps the projector on whole sequences when text shares them."""

    cp_vision_model_id: str | None = None
    """Name of the windowed vision encoder whose attention can share sequences."""


class Machine(Section):
    """What a release's guide says about the software below its pins."""

    driver: str | None
    """Driver and firmware; null where the guide names none."""

    cann_from: str | None
    """Oldest CANN that works; null where only the pinned one is named."""


class Fsdp2(Section):
    """How a release shards parameters with MindSpeed's FSDP2."""

    mindspeed: str | None
    """Commit of MindSpeed that the variant is pinned to; null takes the family's."""

    passes_also: tuple[str, ...]
    """Flags that its shipped FSDP2 script passes and another release's does not."""

    config: dict[str, Any]
    """The settings file, as shipped."""


class Release(Section):
    """One release of MindSpeed-MM."""

    name: str
    """Name of the release, as its branch is called."""

    commit: str
    """Commit of MindSpeed-MM that was read."""

    core: str
    """Version of Megatron core."""

    entry: str
    """Script that torchrun starts."""

    toolkit: str
    """Folder below the Ascend prefix that holds CANN's set_env.sh."""

    canonical: bool
    """True when the release can train q, k, v, gate and up as modules of their own."""

    fused_gradients: bool
    """True when gradients can be added inside the matrix product, which takes CANN's ATB."""

    demo_image: str
    """Picture in its checkout that its inference examples look at."""

    fused_inference: bool
    """True when inference attends by the fused kernel of the NPU."""

    bridge: bool
    """True when training can load HF weights without a conversion."""

    fsdp2: Fsdp2 | None
    """FSDP2 as shipped; null where no example uses it."""

    mindspeed: dict[str, str]
    """Commit of MindSpeed that each family's README asks for; families without example lack."""

    passes_also: dict[str, tuple[str, ...]]
    """Flags that its shipped script of a family passes and another release's does not."""

    model_json: ModelJson
    """Differences of its model.json."""

    machine: Machine
    """Driver, and which CANN fits."""

    pins: dict[str, str]
    """Versions and commits of the software around it, whatever the family."""

    @property
    def flags(self) -> Mapping[str, FlagSpec]:
        """Every flag its trainer knows."""
        return known_flags(self.name)

    def pins_for(self, family: str, *, fsdp2: bool = False) -> dict[str, str]:
        """Give the versions and commits around a family, its MindSpeed commit among them."""
        commit = self.mindspeed[family]
        if fsdp2 and self.fsdp2 and self.fsdp2.mindspeed:
            commit = self.fsdp2.mindspeed
        return {**self.pins, "mindspeed": commit}


@cache
def _releases() -> dict[str, Release]:
    path = _FOLDER / "releases.yaml"
    document = read_yaml(path.read_text(encoding="utf-8"), path.name)
    return {
        name: Release.model_validate(freeze({"name": name, **facts}))
        for name, facts in document.data.items()
    }


@cache
def _flag_variants() -> dict[str, list[dict[str, Any]]]:
    variants: dict[str, list[dict[str, Any]]] = json.loads(
        (_FOLDER / "flags.json").read_text(encoding="utf-8")
    )
    return variants


def release_names() -> tuple[str, ...]:
    """List the releases that are known, oldest first."""
    return tuple(_releases())


def load_release(name: str, *, where: str = "--release") -> Release:
    """Look a release up by name.

    Raises:
        ProfileError: It is not known.
    """
    releases = _releases()
    if name not in releases:
        raise ProfileError(
            f"release {name!r} of MindSpeed-MM is not known",
            where=where,
            why="flags and files differ between releases",
            fix=nearest(name, releases),
        )
    return releases[name]


@cache
def known_flags(release: str) -> Mapping[str, FlagSpec]:
    """Give every flag that a release's trainer accepts.

    Raises:
        ProfileError: The release is not known.
    """
    load_release(release)
    flags = {}
    for flag, variants in _flag_variants().items():
        for variant in variants:
            if release in variant.get("in", (release,)):
                spec = {key: value for key, value in variant.items() if key != "in"}
                flags[flag] = FlagSpec.model_validate(freeze(spec))
    return flags


@cache
def varying_flags() -> frozenset[str]:
    """Give the flags that some release's shipped script passes and another's does not."""
    return frozenset(
        flag
        for release in _releases().values()
        for flags in (
            *release.passes_also.values(),
            release.fsdp2.passes_also if release.fsdp2 else (),
        )
        for flag in flags
    )


def releases_of(family: str) -> tuple[str, ...]:
    """List the releases that ship an example of a family, oldest first."""
    return tuple(name for name, release in _releases().items() if family in release.mindspeed)
