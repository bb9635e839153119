"""The template environment, and where templates are."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from taskpack.errors import HostError
from taskpack.paths import PACKAGE_DIR
from taskpack.profile.yaml_loader import StrictDumper


@cache
def templates_dir() -> Path:
    """Find the templates: inside an installed package, else beside `tools/` in a checkout.

    Raises:
        HostError: Neither is there.
    """
    for candidate in (PACKAGE_DIR / "_templates", PACKAGE_DIR.parents[1] / "templates"):
        if (candidate / "task").is_dir():
            return candidate
    raise HostError(
        "the templates are not installed",
        where=str(PACKAGE_DIR),
        why="a task is rendered from templates/task",
        fix="install the package again, or run from a complete checkout",
    )


@cache
def environment() -> Environment:
    """Make the environment; an undefined name is an error, never empty text."""
    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        # bash's ${#array[@]} contains Jinja's own comment mark
        comment_start_string="<#",
        comment_end_string="#>",
    )
    made.filters = {"sh": shell_word, "yaml": _yaml, "json": _json}
    return made


def number(value: float) -> str:
    """Write a number as people do: `1.0e-5`, not `1e-05`."""
    mantissa, exponent_mark, exponent = repr(value).partition("e")
    if not exponent_mark:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"


def shell_word(value: Any) -> str:
    """Quote a value as one word of a shell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, (int, float)) else shlex.quote(str(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=StrictDumper, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
