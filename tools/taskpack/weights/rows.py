"""What a row of a family table says, and how it expands to tensors.

A row names the HF modules, the MindSpeed-MM module, and where rows go. It holds no code: both
directions, resplit, verify, inspect and adapters all follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Parallel = Literal["column", "row", "replicated"]
Module = Literal["vision", "text"]
Stage = Literal["first", "layer", "last"]

Naming = tuple[tuple[str, str], ...]
"""Pairs of a prefix in the table and the same prefix as a checkpoint spells it."""

PER_RANK = "per rank"
"""Row order with one part per tensor parallel rank: each rank holds its share of every section."""


@dataclass(frozen=True, slots=True)
class Row:
    """Where the parameters of one MindSpeed-MM module come from.

    Attributes:
        hf: HF modules whose rows make up the module, with `{layer}` for the global layer. A name
            that ends with `[{expert}]` is no module but a slice of a parameter that stacks experts
            along its first axis.
        mm: MindSpeed-MM module, `{layer}` being the local layer of its stage and `{expert}` the
            local expert of its expert parallel rank.
        shapes: Shape of each HF module's weight, as names of dimensions; a bias has the first.
        module: The pipeline split that places it.
        stage: The first stage that owns a layer of the module, the layer's own, or the last.
        parallel: `column` cuts output features (axis 0 of weight and bias), `row` cuts input
            features (axis 1 of the weight; the bias is replicated).
        order: Number of parts of the row order: the name of a dimension, or `PER_RANK`.
        sections: Equal sections inside the one HF tensor, such as 3 for a fused vision qkv.
        parts: Parameters of the module.
        tied_to: HF module that this one shares its weight with where the config ties them.
        at: Dimension list of the only layers that have the module, such as `deepstack` for
            `deepstack[0]`, `deepstack[1]`, ...; `{index}` is the position in that list.
        experts: Dimension that counts the module's experts, each of which has one.
        transposed: HF stores `[in, out]` where MindSpeed-MM has `[out, in]`; shapes are the latter.
    """

    hf: tuple[str, ...]
    mm: str
    shapes: tuple[str, ...]
    module: Module
    stage: Stage
    parallel: Parallel = "replicated"
    order: str = PER_RANK
    sections: int = 1
    parts: tuple[str, ...] = ("weight",)
    tied_to: str | None = None
    at: str | None = None
    experts: str | None = None
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Models that share one mapping.

    Attributes:
        name: Name in profiles and layouts.
        model_types: `model_type` values of config.json that belong to it.
        dims: Dimension names and how config.json gives them (see `read_dims`).
        fused: Rows of MindSpeed-MM's own structure.
        namings: Prefixes of each way HF spells the names, the most specific first and the one
            to write without a reference last.
        layers: Dimension that counts the layers of each module.
        canonical: Rows of its `canonical_model` structure, which keeps HF's modules apart; empty
            where MindSpeed-MM has none.
    """

    name: str
    model_types: tuple[str, ...]
    dims: Mapping[str, str]
    fused: tuple[Row, ...]
    namings: tuple[Naming, ...]
    layers: Mapping[Module, str]
    canonical: tuple[Row, ...] = ()

    def rows(self, *, canonical: bool) -> tuple[Row, ...]:
        """Give the table of one structure; without a canonical one both are the fused table."""
        return self.canonical if canonical and self.canonical else self.fused


@dataclass(frozen=True, slots=True)
class Section:
    """A run of rows of one logical tensor that a row order treats as a unit."""

    tensor: str
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter of one layer: a row made concrete.

    `tensors` are the logical tensors with their shapes, `spelled` every HF name that holds each
    of them (a tied head, or one LoRA A standing for q, k and v, has several). `expert` is the
    expert of `experts` that it belongs to; `transposed` says that HF stores the shapes turned.
    """

    mm: str
    layer: int
    module: Module
    stage: Stage
    axis: int | None
    parts: int | None
    sections: tuple[Section, ...]
    tensors: Mapping[str, tuple[int, ...]]
    spelled: Mapping[str, tuple[str, ...]]
    expert: int = 0
    experts: int = 1
    transposed: bool = False

    @property
    def rows(self) -> int:
        """Length along the sharded axis, over all sections."""
        return sum(section.rows for section in self.sections)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole MindSpeed-MM tensor before any cut."""
        first = next(iter(self.tensors.values()))
        axis = self.axis or 0
        return (*first[:axis], self.rows, *first[axis + 1 :])


def entries(family: Family, dims: Mapping[str, int], *, canonical: bool, tied: bool) -> list[Entry]:
    """Expand a table for one model.

    Args:
        family: The family.
        dims: Its dimensions, from `read_dims`.
        canonical: Whether to use the canonical structure.
        tied: Whether the output head shares the embedding.
    """
    return [
        _entry(row, part, place, dims, tied=tied)
        for row in family.rows(canonical=canonical)
        for place in _places(row, dims, family)
        for part in row.parts
    ]


def _places(row: Row, dims: Mapping[str, int], family: Family) -> Iterator[dict[str, int]]:
    """Yield the layer, position in the row's list and expert of each module a row stands for."""
    count = dims[family.layers[row.module]]
    layers: Iterable[int] = range(count)
    if row.stage != "layer":
        layers = (0,) if row.stage == "first" else (count - 1,)
    elif row.at is not None:
        layers = listed(dims, row.at)
    for index, layer in enumerate(layers):
        for expert in range(dims[row.experts] if row.experts else 1):
            yield {"layer": layer, "index": index, "expert": expert}


def listed(dims: Mapping[str, int], name: str) -> list[int]:
    """Give the values of a dimension list: `name[0]`, `name[1]`, ... as far as they go."""
    values: list[int] = []
    while (key := f"{name}[{len(values)}]") in dims:
        values.append(dims[key])
    return values


def _entry(
    row: Row, part: str, place: Mapping[str, int], dims: Mapping[str, int], *, tied: bool
) -> Entry:
    hf: tuple[str, ...] = (row.tied_to,) if tied and row.tied_to else row.hf
    tensors: dict[str, tuple[int, ...]] = {}
    for module, dimensions in zip(hf, row.shapes, strict=True):
        shape = tuple(dims[name] for name in dimensions.split())
        name = module if module.endswith("]") else f"{module}.{part}"
        tensors[name.format(**place)] = shape if part == "weight" else shape[:1]
    axis = _axis(row.parallel, part)
    spelled: dict[str, tuple[str, ...]] = {name: (name,) for name in tensors}
    if tied and row.tied_to:
        name = next(iter(tensors))
        spelled[name] = (name, f"{row.hf[0]}.{part}")
    return Entry(
        mm=f"{row.mm}.{part}",
        layer=place["layer"],
        module=row.module,
        stage=row.stage,
        axis=axis,
        parts=None if row.order == PER_RANK else dims[row.order],
        sections=tuple(_sections(tensors, row.sections, axis or 0)),
        tensors=tensors,
        spelled=spelled,
        expert=place["expert"],
        experts=dims[row.experts] if row.experts else 1,
        transposed=row.transposed,
    )


def _axis(parallel: Parallel, part: str) -> int | None:
    if parallel == "column":
        return 0
    return 1 if parallel == "row" and part == "weight" else None


def _sections(
    tensors: Mapping[str, tuple[int, ...]], per_tensor: int, axis: int
) -> Iterator[Section]:
    for name, shape in tensors.items():
        rows = shape[axis] // per_tensor
        for index in range(per_tensor):
            yield Section(name, index * rows, rows)


def naming_of(family: Family, names: Collection[str]) -> Naming:
    """Tell which spelling a set of HF names uses: the one whose prefixes match most of them."""
    if not names:
        return family.namings[-1]
    return max(
        family.namings,
        key=lambda naming: sum(name.startswith(tuple(p for _, p in naming)) for name in names),
    )


def spell(name: str, naming: Naming) -> str:
    """Write a name of the table in another naming."""
    for own, other in naming:
        if name.startswith(own):
            return other + name[len(own) :]
    return name


def pattern_of(name: str) -> str:
    """Replace the numbers in a tensor name, to group names that differ only by layer."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|(?<=\[)\d+(?=\])", "*", name)
