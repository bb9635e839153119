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
        elif details["type"] == "missing":
            yield Fault(
                path, f"the key {name} is missing", "it has no value that suits every task",
                f"add it: {_description(model, path)}",
            )  # fmt: skip
        else:
            yield _bad_value(details, path, model)


def _bad_value(details: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> Fault:
    what = f"{dotted(path)} cannot be {_show(details['input'])}"
    return Fault(path, what, _rule(details), f"give {_description(model, path)}")


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text; put quotes around it",
    "bool_type": "true or false",
    "tuple_type": "a list: [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a group of keys",
    "dataclass_type": "a group of keys",
}


def _rule(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _EXPECTED:
        return f"the value must be {_EXPECTED[kind]}"
    if kind == "literal_error":
        return f"the value must be one of {context['expected']}"
    if kind == "layer_list":
        return str(details["msg"])
    return str(details["msg"]).replace("Input should", "the value must").replace(
        "String should", "the text must"
    )  # fmt: skip


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
    text = "another value"
    for part in path:
        field = _named_fields(current).get(str(part)) if current else None
        if field is None:
            break
        text = field.description or text
        current = _field_model(field.annotation)
    return text[0].lower() + text[1:] if text[1:2].islower() else text
