"""Faults of a profile, and how they become errors with a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from taskpack.errors import ProfileError, nearest
from taskpack.profile.yaml_loader import KeyPath, dotted

Where = Callable[[KeyPath], str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken rule, named by the key that should change."""

    path: KeyPath
    what: str
    why: str
    fix: str

    def to_error(self, where: Where) -> ProfileError:
        """Place the fault in the file it came from."""
        return ProfileError(self.what, where=where(self.path), why=self.why, fix=self.fix)


def faults_of(error: ValidationError, model: type[BaseModel]) -> Iterator[Fault]:
    """Phrase each of pydantic's findings as a fault."""
    for details in error.errors(include_url=False):
        path: KeyPath = tuple(details["loc"])
        name = dotted(path)
        if details["type"] == "extra_forbidden":
            known = _keys_at(model, path[:-1])
            yield Fault(
                path, f"the key {name} is not known", "a misspelt key would silently do nothing",
                nearest(str(path[-1]), known),
            )  # fmt: skip
        elif details["type"] == "missing" and isinstance(path[-1], int):
            yield Fault(
                path[:-1],
                f"{dotted(path[:-1])} has only {path[-1]} values",
                f"the key means: {_description(model, path)}",
                "give the values that are missing",
            )
        elif details["type"] == "missing":
            yield Fault(
                path, f"the key {name} is missing", "it has no value that suits every task",
                f"add it: {_description(model, path)}",
            )  # fmt: skip
        else:
            yield _bad_value(details, path, model)


def _bad_value(details: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> Fault:
    expected = _expected(details)
    fix = f"give {expected}"
    if details["type"] == "literal_error" and isinstance(details["input"], str):
        fix = nearest(details["input"], _options(details))
    what = f"{dotted(path)} cannot be {_show(details['input'])}"
    return Fault(path, what, f"the key means: {_description(model, path)}", fix)


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text, in quotes where it looks like something else",
    "bool_type": "true or false",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a group of keys",
    "finite_number": "a finite number",
    "string_too_short": "text that is not empty",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number from {ge:g} up",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number up to {le:g}",
    "too_long": "a list of {max_length} values",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def _expected(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return " or ".join(_options(details))
    if kind in _EXPECTED:
        return _EXPECTED[kind].format(**context)
    return str(details["msg"])


def _options(details: ErrorDetails) -> list[str]:
    quoted: str = details["ctx"]["expected"]
    return [option.strip("'") for option in quoted.replace(" or ", ", ").split(", ")]


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_show, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    return repr(value)


def _field_model(annotation: Any) -> type[BaseModel] | None:
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )


def _keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    current: type[BaseModel] | None = model
    for part in path:
        field = _named_fields(current).get(str(part)) if current else None
        current = _field_model(field.annotation) if field else None
    return list(_named_fields(current)) if current else []


def _named_fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _description(model: type[BaseModel], path: KeyPath) -> str:
    current: type[BaseModel] | None = model
    text = ""
    for part in path:
        field = _named_fields(current).get(str(part)) if current else None
        if field is None:
            break
        text = field.description or text
        current = _field_model(field.annotation)
    sentence = text.removesuffix(".").replace("\n", " ")
    first = sentence.partition(" ")[0]
    return sentence if not first[1:].islower() else sentence[0].lower() + sentence[1:]
