"""JSON by orjson where it is installed, else by the standard library, ten times as slow."""

from __future__ import annotations

import json
from typing import Any

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]


def loads(text: str | bytes) -> Any:
    """Parse JSON.

    A number of more than 64 bits may come out as a float, and some texts that the standard library
    takes are refused: where that matters, ask the standard library as well.

    Raises:
        ValueError: It is no JSON, or not for this parser.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text) if orjson is None else orjson.loads(text)


def dumps(value: object) -> bytes:
    """Spell a value in UTF-8 without white space, the same with either library.

    Raises:
        UnicodeEncodeError: A text holds half of a surrogate pair.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value)
        except orjson.JSONEncodeError:
            pass  # the standard library says what is wrong
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
