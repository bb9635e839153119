"""The base of every part of a profile, and the scalar types they share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


class Section(BaseModel):
    """A frozen group of keys; an unknown key or a value of another type is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )


def freeze(value: Any) -> Any:
    """Turn lists into tuples all the way down, so that a profile cannot change."""
    if isinstance(value, dict):
        return {key: freeze(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """Turn tuples back into lists all the way down, as users write them."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def _as_written(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Text = Annotated[str, StringConstraints(min_length=1)]
EnvironmentValue = Annotated[str, BeforeValidator(_as_written)]
