"""The trainer's command line: the flags of one release, and nothing else."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from taskpack.errors import ProfileError, nearest, raise_collected

if TYPE_CHECKING:
    from taskpack.profile import FlagSpec

WHERE = "command line of pretrain_vlm.py"
CONVERTERS = {"int": int, "float": float, "str": str, "bool": str, None: str}

Value = bool | int | float | str | list[int | float | str]


class Flags:
    """The flags of one start, as given; every reader names its default."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)
        self._read: set[str] = set()

    def number(self, flag: str, default: float) -> float:
        """Read a number."""
        return float(self._get(flag, default))  # type: ignore[arg-type]  # checked by its spec

    def count(self, flag: str, default: int) -> int:
        """Read a whole number."""
        return int(self._get(flag, default))  # type: ignore[arg-type]  # checked by its spec

    def text(self, flag: str, default: str = "") -> str:
        """Read a word."""
        return str(self._get(flag, default))

    def words(self, flag: str) -> tuple[str, ...]:
        """Read several words; MindSpeed-MM 26.0 and later also take them joined by commas."""
        value = self._get(flag, [])
        items = value if isinstance(value, list) else [value]
        return tuple(word for item in items for word in str(item).split(",") if word)

    def present(self, flag: str) -> bool:
        """Tell whether the flag was given."""
        return self._get(flag, False) is not False

    def unread(self) -> list[str]:
        """List the flags that nothing asked for: known, and without effect here."""
        return sorted(set(self._values) - self._read)

    def to_namespace(self) -> argparse.Namespace:
        """Give the values under the names that Megatron saves them by."""
        return argparse.Namespace(
            **{flag.lstrip("-").replace("-", "_"): value for flag, value in self._values.items()}
        )

    def _get(self, flag: str, default: Value) -> Value:
        self._read.add(flag)
        return self._values.get(flag, default)


def parse_flags(argv: Sequence[str], known: Mapping[str, FlagSpec], *, release: str) -> Flags:
    """Read a command line strictly.

    Args:
        argv: The words behind `pretrain_vlm.py`.
        known: Every flag of the release.
        release: Name of the release, for messages.

    Raises:
        ProfileError: A flag is unknown, lacks its value, or has a wrong one; all are reported.
    """
    values: dict[str, Value] = {}
    faults: list[ProfileError] = []
    for flag, words in _grouped(argv, faults):
        if flag not in known:
            faults.append(_unknown(flag, known, release))
            continue
        try:
            values[flag] = _value(known[flag], words)
        except ValueError as error:
            faults.append(_wrong(flag, str(error)))
    missing = [name for name, spec in known.items() if spec.required and name not in values]
    faults.extend(_wrong(name, "is missing, and the trainer needs it") for name in missing)
    raise_collected(faults)
    return Flags(values)


def _grouped(argv: Sequence[str], faults: list[ProfileError]) -> Iterator[tuple[str, list[str]]]:
    current: tuple[str, list[str]] | None = None
    for word in argv:
        if word.startswith("--"):
            if current:
                yield current
            flag, equals, value = word.partition("=")
            current = (flag, [value] if equals else [])
        elif current is None:
            faults.append(_wrong(word, "stands before any flag"))
        else:
            current[1].append(word)
    if current:
        yield current


def _value(spec: FlagSpec, words: Sequence[str]) -> Value:
    if spec.switch:
        if words:
            raise ValueError(f"takes no value, and got {' '.join(words)!r}")
        return True
    if len(words) != 1 and spec.nargs is None:
        raise ValueError(f"takes one value, and got {len(words)}")
    if not words and spec.nargs == "+":
        raise ValueError("takes at least one value, and got none")
    values = [_converted(spec, word) for word in words]
    return values[0] if spec.nargs is None else values


def _converted(spec: FlagSpec, word: str) -> int | float | str:
    if spec.choices and word not in spec.choices:
        raise ValueError(f"is {word!r}; use one of: {', '.join(spec.choices)}")
    try:
        value: int | float | str = CONVERTERS[spec.type](word)
    except ValueError:
        raise ValueError(f"is {word!r}, which is no {spec.type}") from None
    return value


def _unknown(flag: str, known: Mapping[str, FlagSpec], release: str) -> ProfileError:
    return ProfileError(
        f"MindSpeed-MM {release} has no flag {flag}",
        where=WHERE,
        why="the trainer stops at a flag that it does not know",
        fix=nearest(flag, known) if _is_close(flag, known) else "leave it out",
    )


def _is_close(flag: str, known: Mapping[str, FlagSpec]) -> bool:
    return nearest(flag, known).startswith("did you mean")


def _wrong(flag: str, fault: str) -> ProfileError:
    return ProfileError(
        f"{flag} {fault}",
        where=WHERE,
        why="the trainer's parser refuses it",
        fix="correct the flag in the launch script's arguments",
    )
