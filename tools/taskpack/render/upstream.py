"""How a rendered task differs from the example that its release ships."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from taskpack.errors import ProfileError
from taskpack.profile import Profile, Release, load_release
from taskpack.profile.shipped import example_names, load_example
from taskpack.render.context import task_context
from taskpack.render.files import rendered_task
from taskpack.render.flags import Argument
from taskpack.render.generation import generation_context, generation_files
from taskpack.render.json_files import FILES

ABSENT = object()
_NOT_COMPARED = ("script",)


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not the shipped one."""

    section: str
    """`settings`, `environment`, `flags`, `model_json`, `data_json` or `fsdp2_config`."""

    name: str
    """Variable, flag, or path of the json key."""

    shipped: Any
    """The example's value; ABSENT where it has none. A switch is None."""

    rendered: Any
    """The task's value, likewise."""


def example_of(profile: Profile) -> str:
    """Name the shipped example of a profile's size.

    Raises:
        ProfileError: No release ships the size.
    """
    text = profile.architecture.text
    wanted = (text.layers, text.hidden_size)
    for name, releases in example_names(profile.family).items():
        model = load_example(profile.family, name, releases[-1])["model_json"]
        size = tuple(model[f"text_decoder.{key}"] for key in ("num_layers", "hidden_size"))
        if size == wanted and name.endswith("-fsdp2") == profile.parallel.fsdp2:
            return name
    raise ProfileError(
        f"MindSpeed-MM ships no example with {text.layers} text layers of {text.hidden_size}",
        where=f"{profile.model} (architecture.text)",
        why="there is nothing to compare with",
        fix="compare a task of a shipped size: " + ", ".join(example_names(profile.family)),
    )


def upstream_json(profile: Profile) -> dict[str, Any]:
    """Gather how a task differs from the shipped example as plain data.

    Raises:
        ProfileError: The release ships no example of the size.
    """
    example = load_example(profile.family, example_of(profile), profile.release)
    return {
        "model": profile.model,
        "release": profile.release,
        "example": example["settings"]["script"],
        "differences": [
            {
                "section": each.section,
                "name": each.name,
                **_side("shipped", each.shipped),
                **_side("rendered", each.rendered),
            }
            for each in differences(profile)
        ],
    }


def upstream_text(profile: Profile) -> str:
    """Lay the differences out for reading; `-` stands for nothing, `set` for a switch."""
    facts = upstream_json(profile)
    rows = [
        (each["section"], each["name"], _shown(each, "shipped"), _shown(each, "rendered"))
        for each in facts["differences"]
    ]
    head = ("section", "name", "shipped", "rendered")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    title = f"{profile.model} and {facts['example']} of MindSpeed-MM {profile.release}: "
    return "\n".join([f"{title}{len(rows)} values differ", *(lines if rows else ())])


def _side(name: str, value: Any) -> dict[str, Any]:
    return {} if value is ABSENT else {name: value}


def _shown(difference: Mapping[str, Any], side: str) -> str:
    if side not in difference:
        return "-"
    value = difference[side]
    if value is None and difference["section"] == "flags":
        return "set"
    return value if isinstance(value, str) else json.dumps(value)


def differences(profile: Profile) -> list[Difference]:
    """List every value that differs between a rendered task and the shipped example.

    Raises:
        ProfileError: The release ships no example of the size.
    """
    shipped = load_example(profile.family, example_of(profile), profile.release)
    rendered = rendered_values(profile)
    return [
        difference
        for section, values in rendered.items()
        for difference in _compare(section, shipped[section], values)
    ]


def generation_differences(profile: Profile, kind: str) -> list[Difference]:
    """List every value that differs between rendered inference or evaluation and the shipped one.

    Args:
        profile: The checked profile.
        kind: `inference` or `evaluate`.

    Raises:
        ProfileError: The release ships no such example of the size.
    """
    release = load_release(profile.release)
    shipped = load_example(profile.family, f"{example_of(profile)}-{kind}", profile.release)
    context = generation_context(profile, release, kind)
    generating = profile.generating
    files = dict(generation_files(profile, release))
    variables = {
        **_variables(generating),
        "GLOBAL_BATCH_SIZE": "computed",
        "SEQ_LENGTH": str(profile.train.seq_length),
        "LOAD_PATH": profile.generate_dir,
    }
    rendered = {
        "settings": {
            **_settings(generating, release),
            "NPUS_PER_NODE": str(generating.parallel.pp),
            "MBS": "1",
            "GRAD_ACC_STEP": "1",
            "entry": f"{kind}_vlm.py",
            "atb": False,
        },
        "environment": {each.name: each.value for each in context["variables"]},
        "flags": dict(_resolve(context["arguments"], variables)),
        "model_json": dict(_flat(json.loads(files[f"{kind}.json"]))),
    }
    return [
        difference
        for section, values in rendered.items()
        for difference in _compare(section, shipped[section], values)
    ]


def rendered_values(profile: Profile) -> dict[str, dict[str, Any]]:
    """Give what a rendered task sets, in the form of a shipped example."""
    release = load_release(profile.release)
    files = rendered_task(profile)
    context = task_context(profile, release)
    values = {
        "settings": _settings(profile, release),
        "environment": {each.name: each.value for each in context["environment"]},
        "flags": dict(_flags(profile, context)),
        **{file: dict(_flat(json.loads(files[path]))) for file, path in FILES.items()},
    }
    config = files.get(PurePosixPath("fsdp2_config.yaml"))
    values["fsdp2_config"] = yaml.safe_load(config) if config else {}
    return values


def _settings(profile: Profile, release: Release) -> dict[str, Any]:
    return {
        "NPUS_PER_NODE": str(profile.platform.npus_per_node),
        "MASTER_PORT": str(profile.platform.master_port),
        "TP": str(profile.parallel.tp),
        "PP": str(profile.parallel.pp),
        "CP": str(profile.parallel.cp),
        "MBS": str(profile.batch.micro),
        "GRAD_ACC_STEP": str(profile.accumulation),
        "entry": release.entry,
        "toolkit": release.toolkit,
        "atb": profile.train.fused_gradients and release.fused_gradients,
    }


def _flags(profile: Profile, context: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    arguments: list[Argument] = [
        argument for group in context["argument_groups"] for argument in group.arguments
    ]
    if profile.tuning.mode == "lora":
        arguments += context["lora_arguments"]
    settings = {setting.name: setting.value for setting in context["settings"]}
    return _resolve(arguments, {**settings, **_variables(profile)})


def _variables(profile: Profile) -> dict[str, str]:
    """Give what the variables of a launcher hold, but for its settings."""
    task = f"tasks/{profile.model}"
    return {
        "TP": str(profile.parallel.tp),
        "PP": str(profile.parallel.pp),
        "CP": str(profile.parallel.cp),
        "GLOBAL_BATCH_SIZE": str(profile.batch.global_ or "computed"),
        "DATA_JSON": f"{task}/data.json",
        "RESUME_PATH": f"{profile.paths.save}.resume_{profile.resume.iteration}",
        "TASK": task,
    }


def _resolve(
    arguments: Iterable[Argument], variables: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    for argument in arguments:
        words = [_resolved(word, variables) for word in argument.words]
        yield argument.flag, " ".join(words) if words else None


def _resolved(word: str, variables: Mapping[str, str]) -> str:
    """Replace the variable at the start of a quoted word: `"$TASK/model.json"`."""
    if not word.startswith('"$'):
        return word
    name, slash, rest = word.strip('"').removeprefix("$").partition("/")
    return variables[name] + slash + rest


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _compare(
    section: str, shipped: Mapping[str, Any], rendered: Mapping[str, Any]
) -> Iterator[Difference]:
    for name in dict.fromkeys((*shipped, *rendered)):
        if name in _NOT_COMPARED:
            continue
        old, new = shipped.get(name, ABSENT), rendered.get(name, ABSENT)
        if _meaning(old) != _meaning(new):
            yield Difference(section, name, old, new)


def _meaning(value: Any) -> Any:
    """Give what a value says: `0` and `0.0` are one number, `./a` and `a` one path."""
    if isinstance(value, bool) or not isinstance(value, str):
        return (type(value) is bool, value)
    try:
        return (False, float(value))
    except ValueError:
        return (False, value.removeprefix("./"))
