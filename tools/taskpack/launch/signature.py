"""What a line of a log can mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cause", "symptom", "wrapper"]
"""A cause ends a run by itself; a symptom follows when another rank ends; a wrapper says only that
something failed. The first of the strongest kind is the error to look at."""

STRENGTH: dict[Kind, int] = {"cause": 3, "symptom": 2, "wrapper": 1}

_CODE = re.compile(r"e[a-z]+\d{4,5}")


@dataclass(frozen=True, slots=True)
class Signature:
    """Text that a known failure leaves in a log."""

    name: str
    kind: Kind

    keys: tuple[str, ...]
    """Pieces of text in lower case, one of which the line holds."""

    why: str
    fix: str

    pattern: re.Pattern[str] | None = None
    """What the line must match as well, in lower case."""

    def matches(self, lowered: str) -> bool:
        """Tell whether a line, in lower case, is one of these."""
        if not any(_holds(lowered, key) for key in self.keys):
            return False
        return self.pattern is None or self.pattern.search(lowered) is not None


def _holds(lowered: str, key: str) -> bool:
    if key not in lowered:
        return False
    # a code is a word of its own: a file may bear it in its name
    return not _CODE.fullmatch(key) or re.search(rf"(?<![\w/]){key}(?!\w)", lowered) is not None
