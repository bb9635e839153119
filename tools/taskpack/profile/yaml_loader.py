"""A strict YAML reader that remembers the line of every key.

Stock `safe_load` keeps the last of two equal keys, reads `on` as true, `010` as 8, `12:30` as 750
and `1e-5` as text. Here a repeated key is an error and a plain scalar is one of: null, `true`,
`false`, a decimal number, or text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from taskpack.errors import ProfileError

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_RESOLVERS = (
    ("null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""]),
    ("bool", re.compile(r"^(?:true|false)$"), list("tf")),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,17})$"), list("-+0123456789")),
    (
        "float",
        re.compile(
            r"^[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|[1-9][0-9]*(?=[eE]))(?:[eE][-+]?[0-9]+)?$"
        ),
        list("-+.0123456789"),
    ),
    ("merge", re.compile(r"^<<$"), ["<"]),
)


_PATTERNS = {kind: pattern for kind, pattern, _ in _RESOLVERS}
_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: text == "true",
    "int": int,
    "float": float,
}


class StrictLoader(yaml.SafeLoader):
    """Composes nodes; only the resolvers above apply to plain scalars."""


class StrictDumper(yaml.SafeDumper):
    """Writes text so that the loader above reads the same values back."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  repeats values, never `&id001`
        """Write every value out."""
        return True


for _class in (StrictLoader, StrictDumper):
    _class.yaml_implicit_resolvers = {}
    for _name, _pattern, _first in _RESOLVERS:
        _class.add_implicit_resolver(_TAG + _name, _pattern, _first)


@dataclass(frozen=True, slots=True)
class Document:
    """The plain data of a YAML text and where each key of it stands."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]

    def where(self, path: KeyPath) -> str:
        """Name the place of a key, or of the nearest mapping above it that is written down."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known, 1)
        return f"{self.name}:{line} ({dotted(path)})" if path else f"{self.name}:{line}"


def dotted(path: KeyPath) -> str:
    """Write a key path as the user does: `tuning.lora.targets[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(text: str, name: str) -> Document:
    """Read one YAML document whose top level is a mapping.

    Args:
        text: The document.
        name: What to call it in messages, usually its path.

    Raises:
        ProfileError: It is not YAML, has a repeated key, or its top level is no mapping.
    """
    node = _compose(text, name)
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else _KINDS[type(node)]
        raise ProfileError(
            f"a mapping of keys was expected, found {found}",
            where=f"{name}:1",
            why="the top level of a profile names its sections",
            fix="start from another task's profile.yaml",
        )
    builder = _Builder(name)
    data: dict[str, Any] = builder.mapping(node, ())
    return Document(name, data, builder.lines)


def read_scalar(text: str, name: str) -> Any:
    """Read a value given on the command line, by the same rules.

    Raises:
        ProfileError: It is not YAML.
    """
    node = _compose(text, name)
    return None if node is None else _Builder(name).value(node, ())


_KINDS: dict[type[yaml.Node], str] = {
    yaml.MappingNode: "a mapping",
    yaml.SequenceNode: "a list",
    yaml.ScalarNode: "a single value",
}


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, StrictLoader)
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        column = f", column {mark.column + 1}" if mark else ""
        raise ProfileError(
            f"the text is not YAML: {error.problem or error.context}",
            where=f"{name}:{line}{column}",
            why="the file could not be read beyond this place",
            fix="indent with spaces, close brackets and quotes, put a space after each colon",
        ) from None
    except RecursionError:
        raise ProfileError(
            "the text is nested too deeply",
            where=name,
            why="no profile has hundreds of brackets in each other",
            fix="close each bracket where its list ends",
        ) from None
    except yaml.reader.ReaderError as error:
        raise ProfileError(
            f"the text holds the character {chr(error.character)!r}",
            where=f"{name}:{text[: error.position].count(chr(10)) + 1}",
            why="YAML allows no control characters",
            fix="remove it",
        ) from None


@dataclass(slots=True)
class _Builder:
    """Turns nodes into plain data and notes the line of each key."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    _open: list[yaml.Node] = field(default_factory=list)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if any(node is parent for parent in self._open):
            raise self._error(
                node,
                f"{dotted(path)} contains itself",
                why="an alias points at a mapping around it",
                fix="write the value out",
            )
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        # merged keys first, so that the lines of a mapping's own keys win as their values do
        for key, value in sorted(self._pairs(node), key=lambda pair: pair[0].tag != _MERGE):
            at = (*path, key.value)
            if key.tag == _MERGE:
                merged = {**self._merge(value, path), **merged}
                continue
            if key.value in own:
                raise self._error(
                    key,
                    f"{dotted(at)} is given twice, first on line {self.lines[at]}",
                    why="one of the two values would be lost",
                    fix="keep one of the two lines",
                    path=at,
                )
            self.lines[at] = key.start_mark.line + 1
            own[key.value] = self.value(value, at)
        return {**merged, **own}

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(
                    key,
                    f"a key is {_KINDS[type(key)]}",
                    why="keys are names",
                    fix="use a plain name",
                )
            yield key, value

    def _merge(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            value = self.value(source, path)
            if not isinstance(value, dict):
                raise self._error(
                    source,
                    "<< is not followed by a mapping",
                    why="only the keys of a mapping can be merged",
                    fix="point << at an anchor that names a mapping: <<: *anchor",
                )
            merged.update(value)
        return merged

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*path, index)] = item.start_mark.line + 1
            items.append(self.value(item, (*path, index)))
        return items

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind in ("str", "merge"):
            return text
        if kind in _CONVERTERS and _PATTERNS[kind].fullmatch(text):
            return _CONVERTERS[kind](text)
        raise self._error(
            node,
            f"{dotted(path) or text} carries the tag {node.tag}",
            why="a profile holds only text, numbers, true, false, null, lists and mappings",
            fix="remove the tag",
        )

    def _error(
        self, node: yaml.Node, what: str, *, why: str, fix: str, path: KeyPath = ()
    ) -> ProfileError:
        place = f"{self.name}:{node.start_mark.line + 1}" + (f" ({dotted(path)})" if path else "")
        return ProfileError(what, where=place, why=why, fix=fix)
