"""Read a Hugging Face config.json as far as weights need it, without transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.errors import CheckpointError
from taskpack.weights.families import FAMILIES
from taskpack.weights.rows import Family, listed


@dataclass(frozen=True, slots=True)
class HfConfig:
    """The family of a model, its dimensions by name, and whether its head is tied.

    `inferred` dimensions were told from shapes: head counts in them are stand-ins.
    """

    family: Family
    dims: Mapping[str, int]
    tied: bool
    inferred: bool = False


def read_hf_config(hf_dir: Path) -> HfConfig:
    """Read config.json of an HF folder.

    Raises:
        CheckpointError: It is absent, not JSON, of no known family, or lacks a dimension.
    """
    path = hf_dir / "config.json"
    if not path.is_file():
        raise CheckpointError(
            "the HF folder has no config.json"
            if hf_dir.is_dir()
            else f"there is no HF folder {hf_dir}",
            where=str(path),
            why="layers, heads and sizes are read from it",
            fix="download the model (bash tasks/MODEL/download_weights.sh), or name its folder",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"config.json is not JSON: {error}",
            where=str(path),
            why="layers, heads and sizes are read from it",
            fix="download the file again",
        ) from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise CheckpointError(
            "config.json names no model_type",
            where=str(path),
            why="the model_type tells the family, and with it every tensor name",
            fix="use the config.json that belongs to the weights",
        )
    return parse_hf_config(config, where=str(path))


def parse_hf_config(config: Mapping[str, Any], *, where: str) -> HfConfig:
    """Read a parsed config.json; see `read_hf_config`."""
    model_type = config["model_type"]
    known = {name: family for family in FAMILIES.values() for name in family.model_types}
    if model_type not in known:
        raise CheckpointError(
            f"model_type {model_type!r} is not supported",
            where=where,
            why="every family needs its own table of tensor names",
            fix="use a model of one of: " + ", ".join(known),
        )
    text = config.get("text_config", {})
    merged = {**config, **(text if isinstance(text, dict) else {})}
    tied = config.get("tie_word_embeddings", merged.get("tie_word_embeddings"))
    if not isinstance(tied, bool | None):
        raise CheckpointError(
            f"tie_word_embeddings is {tied!r}, neither true nor false",
            where=where,
            why="it tells whether the output head is the embedding",
            fix="use the config.json that belongs to the weights",
        )
    family = known[model_type]
    dims = read_dims(family.dims, merged, where=where)
    check_lists(family, dims, where=where)
    return HfConfig(family, dims, tied=bool(tied))


def read_dims(
    formulas: Mapping[str, str], config: Mapping[str, Any], *, where: str
) -> dict[str, int]:
    """Evaluate the dimension formulas of a family, in order.

    A formula is a product such as `heads * head_dim`, or alternatives parted by `|` of which the
    first that the config can answer counts. Names are earlier dimensions, numbers, or keys of the
    config (`vision_config.depth`). A name that ends with `[]` takes a list of numbers from 0 and
    gives one dimension for each: `deepstack[0]`, `deepstack[1]`, ...

    Raises:
        CheckpointError: The config lacks a key, or holds something else than a positive number.
    """
    dims: dict[str, int] = {}
    for name, formula in formulas.items():
        if name.endswith("[]"):
            dims |= _read_list(name[:-2], formula, config, where=where)
            continue
        values = (_evaluate(alternative, dims, config) for alternative in formula.split("|"))
        value = next((value for value in values if value is not None), None)
        if value is None or value < 1:
            raise _unusable(formula, where)
        dims[name] = value
    return dims


def _read_list(
    name: str, key: str, config: Mapping[str, Any], *, where: str
) -> Iterator[tuple[str, int]]:
    values = _node(key, config)
    if not isinstance(values, list) or any(type(v) is not int or v < 0 for v in values):
        raise _unusable(key, where)
    return ((f"{name}[{index}]", value) for index, value in enumerate(values))


def check_lists(family: Family, dims: Mapping[str, int], *, where: str) -> None:
    """Check that dimension lists of layers name layers that exist.

    Raises:
        CheckpointError: One lies beyond the last layer.
    """
    for row in family.fused:
        count = dims[family.layers[row.module]]
        beyond = [layer for layer in listed(dims, row.at or "") if layer >= count]
        if beyond:
            raise CheckpointError(
                f"{row.at} names layer {beyond[0]}, but there are {count} {row.module} layers",
                where=where,
                why="the modules that the list places belong to these layers",
                fix="use the config.json that belongs to the weights",
            )


def _unusable(formula: str, where: str) -> CheckpointError:
    return CheckpointError(
        f"config.json gives no usable value for {formula!r}",
        where=where,
        why="the size of the tensors follows from it",
        fix="use the config.json that belongs to the weights",
    )


def _evaluate(formula: str, dims: Mapping[str, int], config: Mapping[str, Any]) -> int | None:
    tokens = formula.split()
    result = _lookup(tokens[0], dims, config)
    for operator, name in zip(tokens[1::2], tokens[2::2], strict=True):
        value = _lookup(name, dims, config)
        if result is None or not value:
            return None
        if operator == "/" and result % value:
            return None
        result = result * value if operator == "*" else result // value
    return result


def _lookup(name: str, dims: Mapping[str, int], config: Mapping[str, Any]) -> int | None:
    if name.isdigit():
        return int(name)
    if name in dims:
        return dims[name]
    node = _node(name, config)
    if isinstance(node, float) and node.is_integer():
        node = int(node)
    return node if isinstance(node, int) and not isinstance(node, bool) else None


def _node(name: str, config: Mapping[str, Any]) -> Any:
    node: Any = config
    for key in name.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node
