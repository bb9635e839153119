"""Tell a model's dimensions from the shapes of its tensors, where no config is at hand.

The stock commands `resplit`, `lora_hf_to_mm` and `lora_mm_to_hf` name no config. Sizes follow from
shapes; only the numbers of heads do not. For those the least number that the tensor parallel sizes
need stands in: every rank holds whole heads, so cutting by any multiple of that number moves the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isqrt, lcm

from taskpack.errors import CheckpointError
from taskpack.weights.adapter import PEFT_PREFIX
from taskpack.weights.families import FAMILIES
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.plan import Address
from taskpack.weights.rows import (
    Family,
    Module,
    Row,
    entries,
    naming_of,
    pattern_of,
    spell,
)
from taskpack.weights.sides import mm_side
from taskpack.weights.tensors import TensorInfo

_HEAD_COUNTS: dict[Module, str] = {"text": "groups", "vision": "vision_heads"}
Equation = tuple[tuple[str, ...], int]


def infer_model(
    family: Family,
    infos: Mapping[Address, TensorInfo],
    layout: Layout,
    *,
    others: Iterable[Layout] = (),
    where: str,
) -> HfConfig:
    """Tell the model of a checkpoint or of an adapter from shapes.

    Args:
        family: The family.
        infos: Tensors in MindSpeed-MM's names (of all ranks), or in peft's (one file).
        layout: Layout the tensors have; tensor parallel size 1 for a peft file.
        others: Further layouts that the model must be able to have.
        where: Folder, for messages.

    Raises:
        CheckpointError: The shapes contradict each other.
    """
    dims: dict[str, int] = {
        family.layers["text"]: layout.text.total,
        family.layers["vision"]: layout.vision.total,
    }
    names = _by_pattern(family, infos)
    waiting = list(_observed(family.rows(canonical=layout.canonical), names, layout))
    while waiting:
        left = [item for item in waiting if not _learn(dims, *item, where=where)]
        if len(left) == len(waiting):
            break
        waiting = left
    for module, heads in _HEAD_COUNTS.items():
        dims[heads] = lcm(*(one.tp_of(module) for one in (layout, *others)))
    unit = lcm(dims["groups"], dims["vision_heads"])
    for name in family.dims:
        dims.setdefault(name, unit)
    if "M" in dims and dims["M"] % dims["VH"] == 0:
        dims["merge"] = isqrt(dims["M"] // dims["VH"])
    tied = not any("output_layer" in name for name in names) and layout.pp_size > 1
    return HfConfig(family, dims, tied=tied, inferred=True)


def _by_pattern(family: Family, infos: Mapping[Address, TensorInfo]) -> dict[str, TensorInfo]:
    """Give one tensor for each name without layer numbers, HF names as the table spells them."""
    plain = {name.removeprefix(PEFT_PREFIX): info for (_, _, name), info in infos.items()}
    naming = [(other, own) for own, other in naming_of(family, plain)]
    names: dict[str, TensorInfo] = {}
    for name, info in plain.items():
        names.setdefault(pattern_of(spell(name, tuple(naming))), info)
    return names


def guess_model(infos: Mapping[Address, TensorInfo], layout: Layout, *, where: str) -> HfConfig:
    """Tell the model of a whole checkpoint: the family whose table names just its tensors.

    Raises:
        CheckpointError: No family's table fits.
    """
    for family in FAMILIES.values():
        try:
            model = infer_model(family, infos, layout, where=where)
        except CheckpointError:
            continue
        expanded = entries(family, model.dims, canonical=layout.canonical, tied=model.tied)
        if {s.address for s in mm_side(expanded, layout, tied=model.tied)} == infos.keys():
            return model
    raise CheckpointError(
        "the tensors are of no known family",
        where=where,
        why="the names of the checkpoint fit no table, or some are missing",
        fix="use a complete checkpoint of: " + ", ".join(FAMILIES),
    )


def _observed(
    rows: Iterable[Row], names: Mapping[str, TensorInfo], layout: Layout
) -> Iterable[Equation]:
    """Yield (symbols that add up, their sum) for each axis of each weight that exists."""
    for row in rows:
        outputs = tuple(shape.split()[0] for shape in row.shapes)
        inputs = row.shapes[0].split()[1:]
        size = layout.tp_of(row.module)
        weight = names.get(f"{row.mm}.weight".replace("{layer}", "*"))
        if weight is not None:
            yield outputs, weight.shape[0] * (size if row.parallel == "column" else 1)
            for symbol, length in zip(inputs, weight.shape[1:], strict=False):
                yield (symbol,), length * (size if row.parallel == "row" else 1)
        yield from _observed_factors(row, names, outputs, inputs, size)


def _observed_factors(
    row: Row,
    names: Mapping[str, TensorInfo],
    outputs: tuple[str, ...],
    inputs: list[str],
    size: int,
) -> Iterable[Equation]:
    mm = row.mm.replace("{layer}", "*")
    a = names.get(f"{mm}.lora_A.default.weight")
    b = names.get(f"{mm}.lora_B.default.weight")
    if a is not None:
        yield (inputs[0],), a.shape[1] * (size if row.parallel == "row" else 1)
    if b is not None:
        yield outputs, b.shape[0] * (size if row.parallel == "column" else 1)
    for module, symbol in zip(row.hf, outputs, strict=True):
        name = pattern_of(f"{module}.weight".replace("{layer}", "*")).removesuffix(".weight")
        a, b = (names.get(f"{name}.lora_{which}.weight") for which in "AB")
        if a is not None:
            yield (inputs[0],), a.shape[1]
        if b is not None:
            yield (symbol,), b.shape[0]


def _learn(dims: dict[str, int], symbols: tuple[str, ...], length: int, *, where: str) -> bool:
    """Use one equation `sum(symbols) = length`; tell whether it is settled."""
    unknown = [symbol for symbol in symbols if symbol not in dims]
    known = sum(dims[symbol] for symbol in symbols if symbol in dims)
    if len(set(unknown)) > 1:
        return False
    rest = length - known
    if (not unknown and rest) or (unknown and (rest <= 0 or rest % len(unknown))):
        raise CheckpointError(
            f"the shapes contradict each other: {' + '.join(symbols)} cannot be {length}",
            where=where,
            why="the sizes of the model are told from the tensors",
            fix="give the layout the checkpoint really has, or its HF folder",
        )
    if unknown:
        dims[unknown[0]] = rest // len(unknown)
    return True
