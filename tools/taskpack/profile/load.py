"""From YAML to a checked profile."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from taskpack.errors import ProfileError, raise_collected
from taskpack.profile._section import Section, freeze
from taskpack.profile.checks import check_profile
from taskpack.profile.faults import Fault, Where, faults_of
from taskpack.profile.model import Profile
from taskpack.profile.yaml_loader import KeyPath, dotted, read_scalar, read_yaml

_TWINS: tuple[tuple[KeyPath, KeyPath], ...] = ((("batch", "global"), ("batch", "accumulation")),)
"""Keys of which one stands for the other."""


def load_profile(path: Path, overrides: Sequence[str] = ()) -> Profile:
    """Read, override and check a profile.

    Args:
        path: The profile.yaml of a task; its folder bears the model's name.
        overrides: Values that replace the file's, as `key.key=value`.

    Raises:
        ProfileError: The file, a value or a combination of values is wrong; all are reported.
    """
    folder = path.resolve().parent.name if path.name == "profile.yaml" else None
    return parse_profile(_read_text(path), _display(path), overrides, folder=folder)


def parse_profile(
    text: str, name: str, overrides: Sequence[str] = (), *, folder: str | None = None
) -> Profile:
    """Override and check the text of a profile.

    Args:
        text: YAML.
        name: What to call the text in messages, usually its path.
        overrides: As for `load_profile`.
        folder: Name of the task's folder, which must be the model's; None does not compare.

    Raises:
        ProfileError: As for `load_profile`.
    """
    document = read_yaml(text, name)
    written = frozenset(document.lines)
    overridden = {_override(document.data, item): f"--set {item}" for item in overrides}
    _replace_twins(document.data, overridden)

    def where(key: KeyPath) -> str:
        for path, option in overridden.items():
            shared = min(len(path), len(key))
            if path[:shared] == key[:shared] and (len(path) <= len(key) or key not in written):
                return f"{option} ({dotted(key)})"
        return document.where(key)

    return _build(document.data, where, folder=folder)


def profile_from_dict(data: Mapping[str, Any], *, where: str) -> Profile:
    """Check plain data as a profile.

    Args:
        data: The keys of a profile, nested.
        where: What to call the data in messages.

    Raises:
        ProfileError: As for `load_profile`.
    """
    return _build(dict(data), lambda key: f"{where} ({dotted(key)})", folder=None)


def _build(data: dict[str, Any], where: Where, *, folder: str | None) -> Profile:
    frozen = freeze(data)
    faults: list[Fault] = []
    try:
        profile = Profile.model_validate(frozen)
    except ValidationError as error:
        faults += faults_of(error, Profile)
        profile = _sound_part(frozen, error)
    faults += check_profile(profile)
    if folder not in (None, getattr(profile, "model", folder)):
        faults.append(_misplaced(profile.model, folder))
    raise_collected([fault.to_error(where) for fault in faults])
    return profile


def _sound_part(data: dict[str, Any], error: ValidationError) -> Profile:
    """Build the sections that are sound, so that the checks between them still run.

    A section whose only fault is an unknown key counts as sound without that key.
    """
    found = error.errors(include_url=False, include_input=False)
    unknown = {item["loc"] for item in found if item["type"] == "extra_forbidden"}
    faulty = {item["loc"][0] for item in found if item["loc"] not in unknown}
    kept = _without(data, unknown, ())
    sections = {}
    for name, field in Profile.model_fields.items():
        if name in faulty:
            continue
        value, section = kept.get(name, field.default), field.annotation
        if isinstance(value, dict) and isinstance(section, type) and issubclass(section, Section):
            value = section.model_validate(value)
        sections[name] = value
    return Profile.model_construct(**sections)


def _without(value: Any, unknown: Container[KeyPath], at: KeyPath) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: _without(item, unknown, (*at, key))
        for key, item in value.items()
        if (*at, key) not in unknown
    }


def _misplaced(model: str, folder: str | None) -> Fault:
    return Fault(
        ("model",),
        f"model {model!r} lies in the folder {folder!r}",
        "a task is found by the name of its folder",
        f"rename the folder to {model}, or set model: {folder}",
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProfileError(
            "there is no profile",
            where=_display(path),
            why="a task is described by this file",
            fix="copy another task's profile.yaml, or write one: taskpack profile from-hf",
        ) from None
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"byte {error.start} is not UTF-8",
            where=_display(path),
            why="profiles are UTF-8 text",
            fix="save the file again as UTF-8",
        ) from None


def _display(path: Path) -> str:
    absolute, here = path.resolve(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)


def _override(data: dict[str, Any], text: str) -> KeyPath:
    """Put one `key.key=value` into the data and return its key path."""
    name, equals, value = text.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise ProfileError(
            f"--set {text!r} names no key and value",
            where=f"--set {text}",
            why="an override replaces one value of the profile",
            fix="write it as key.key=value, for example --set train.lr=2e-5",
        )
    target = data
    for part in path[:-1]:
        below = target.setdefault(part, {})
        if not isinstance(below, dict):
            raise ProfileError(
                f"--set {text!r} goes below {part!r}, which holds a value, not keys",
                where=f"--set {text}",
                why="only groups of keys have keys below them",
                fix="name a key of the profile",
            )
        target = below
    target[path[-1]] = read_scalar(value, f"--set {text}")
    return path


def _replace_twins(data: dict[str, Any], overridden: Container[KeyPath]) -> None:
    """Take out a key when an override gave the one that stands for it."""
    for path, twin in (*_TWINS, *(pair[::-1] for pair in _TWINS)):
        group, key = map(str, twin)
        section = data.get(group)
        if path in overridden and twin not in overridden and isinstance(section, dict):
            section.pop(key, None)
