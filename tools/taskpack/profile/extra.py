"""Flags and json keys that have no key of their own in a profile."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from taskpack.profile._section import Section

Scalar = bool | int | float | str
FlagValue = Scalar | tuple[Scalar, ...]


def _json(value: Any) -> Any:
    """Refuse what JSON cannot hold; a profile is read from YAML, so keys could be anything."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise PydanticCustomError("json", "a mapping whose names are text")
        return {key: _json(item) for key, item in value.items()}
    return value


Json = Annotated[dict[str, Any], AfterValidator(_json)]


class Extra(Section):
    """Passed on as it is, after a check that the release knows it."""

    flags: dict[Annotated[str, Field(pattern=r"^--[a-z0-9][a-z0-9-]*$")], FlagValue] = Field(
        default_factory=dict
    )
    """Flags of the trainer by name: true for a switch, a value, or a list of values."""

    model_json: Json = Field(default_factory=dict)
    """Keys of model.json, nested as there."""

    data_json: Json = Field(default_factory=dict)
    """Keys of data.json, nested as there."""
