"""LoRA adapters: their rows follow from the base rows, so there is no second table.

For a base weight `[out, in]` an adapter has A `[R, in]` and B `[out, R]`. Column parallel: B is cut
and ordered like the weight and A is replicated. Row parallel: A is cut along its columns and B is
replicated. A fused MindSpeed-MM module has one A; HF keeps a copy of it for each of its modules,
so a fused adapter exists only where those copies are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import CheckpointError, nearest, shorten
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.mm_checkpoint import extra_states
from taskpack.weights.mm_folder import MmFolder
from taskpack.weights.peft_config import read_peft_config
from taskpack.weights.plan import Address, check_side, refuse_other_types
from taskpack.weights.rows import Entry, Naming, Section, entries, naming_of, pattern_of, spell
from taskpack.weights.run import Side
from taskpack.weights.safetensors_file import read_safetensors
from taskpack.weights.sides import hf_side, mm_side
from taskpack.weights.tensors import TensorInfo

ADAPTER_FILE = "adapter_model.safetensors"
PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Factors:
    """The logical adapter tensors of one base weight."""

    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Adapted:
    """A base weight with its adapter.

    Attributes:
        base: Entry of the base weight.
        a: Entry of lora_A.
        b: Entry of lora_B.
    """

    base: Entry
    a: Entry
    b: Entry


def adapted_entries(
    base: Sequence[Entry], r: int, ranks: Mapping[str, int] = MappingProxyType({})
) -> list[Adapted]:
    """Derive the adapter entries of the modules that can carry one: every linear but the head.

    Args:
        base: Entries of the base table.
        r: LoRA rank.
        ranks: Other ranks, by the name of lora_A of an entry's first weight.
    """
    return [
        Adapted(entry, _a_entry(entry, rank), _b_entry(entry, rank))
        for entry in base
        for rank in (ranks.get(_factor(next(iter(entry.tensors)), "A"), r),)
        if entry.axis is not None
        and len(entry.shape) == 2
        and entry.experts == 1
        and (entry.stage == "layer" or entry.module == "vision")
    ]


def factors_of(base: Entry) -> dict[str, Factors]:
    """Name the factors of each logical weight of an entry."""
    first = next(iter(base.tensors))
    return {name: Factors(_factor(first, "A"), _factor(name, "B")) for name in base.tensors}


def _factor(weight: str, which: str) -> str:
    return f"{weight.removesuffix('.weight')}.lora_{which}.weight"


def _mm_factor(entry: Entry, which: str) -> str:
    return f"{entry.mm.removesuffix('.weight')}.lora_{which}.default.weight"


def _a_entry(entry: Entry, r: int) -> Entry:
    first = _factor(next(iter(entry.tensors)), "A")
    columns = entry.shape[1]
    return replace(
        entry,
        mm=_mm_factor(entry, "A"),
        axis=1 if entry.axis == 1 else None,
        parts=None,
        sections=(Section(first, 0, columns if entry.axis == 1 else r),),
        tensors={first: (r, columns)},
        spelled={first: tuple(_factor(name, "A") for name in entry.tensors)},
    )


def _b_entry(entry: Entry, r: int) -> Entry:
    tensors = {_factor(name, "B"): (shape[0], r) for name, shape in entry.tensors.items()}
    sections = tuple(
        replace(section, tensor=_factor(section.tensor, "B")) for section in entry.sections
    )
    if entry.axis == 1:
        sections = tuple(Section(name, 0, shape[0]) for name, shape in tensors.items())
    return replace(
        entry,
        mm=_mm_factor(entry, "B"),
        axis=0 if entry.axis == 0 else None,
        sections=sections,
        tensors=tensors,
        spelled={name: (name,) for name in tensors},
    )


def peft_naming(naming: Naming) -> Naming:
    """Put peft's prefix in front of a spelling, and of names that it leaves alone."""
    return (*((own, PEFT_PREFIX + other) for own, other in naming), ("", PEFT_PREFIX))


def module_in_peft(name: str) -> str:
    """Give the module that a tensor of a peft folder belongs to, as the base model names it."""
    return name.removeprefix(PEFT_PREFIX).partition(".lora_")[0]


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """An adapter that can be read.

    Attributes:
        side: Its tensors.
        adapted: The modules that have an adapter, layer by layer.
        possible: Every module that could have one.
        r: LoRA rank, the largest where modules have several.
        saved: Weights that were trained whole (`modules_to_save`), by their names in the table.
    """

    side: Side
    adapted: Sequence[Adapted]
    possible: Sequence[Adapted]
    r: int
    saved: Mapping[str, TensorInfo] = field(default_factory=dict)


def mm_adapter(folder: MmFolder, config: HfConfig, layout: Layout) -> AdapterSource:
    """Read the places of an adapter's tensors in a Megatron checkpoint.

    Raises:
        CheckpointError: There is no adapter, or its tensors do not fit the model and layout.
    """
    where = str(folder.root)
    infos = folder.infos
    refuse_other_types(infos, where=where)
    r = _lora_rank(infos, where=where)
    base = entries(config.family, config.dims, canonical=layout.canonical, tied=config.tied)
    present = {pattern_of(address[2]) for address in infos}
    possible = adapted_entries(base, r)
    adapted = [
        item
        for item in possible
        if item.a.mm.format(layer="*") in present or item.b.mm.format(layer="*") in present
    ]
    _refuse_unknown_modules(infos, [e.mm for item in possible for e in (item.a, item.b)], where)
    stored = mm_side([e for item in adapted for e in (item.a, item.b)], layout)
    check_side(stored, infos, where=where, dropped={})
    return AdapterSource(Side(stored, infos, extra_states(folder), where), adapted, possible, r)


def peft_adapter(peft_dir: Path, config: HfConfig, *, canonical: bool) -> AdapterSource:
    """Read the places of an adapter's tensors in a peft folder.

    Args:
        peft_dir: Folder with adapter_model.safetensors, and adapter_config.json if there is one.
        config: The base model.
        canonical: Whether each HF module has an adapter of its own; else those that are fused
            share lora_A.

    Raises:
        CheckpointError: A tensor is missing, or none of the model's modules.
    """
    infos = peft_adapter_infos(peft_dir)
    naming = _naming_in(infos, config)
    settings = read_peft_config(peft_dir)
    saved = _saved_modules(infos, settings.saved if settings else ())
    infos = {address: info for address, info in infos.items() if address[2] not in saved}
    refuse_other_types(infos, where=str(peft_dir))
    tensors = {name for _, _, name in infos}
    back = tuple((other, own) for own, other in naming)
    ranks = {
        spell(name, back): info.shape[0]
        for (_, _, name), info in infos.items()
        if ".lora_A." in name and info.shape
    }
    r = max(ranks.values(), default=0) or _lora_rank(infos, where=str(peft_dir))
    base = entries(config.family, config.dims, canonical=canonical, tied=config.tied)
    possible = adapted_entries(base, r, ranks)
    adapted = [
        item for item in possible if any(spell(name, naming) in tensors for name in _spelled(item))
    ]
    known = [spell(name, naming) for item in possible for name in _spelled(item)]
    _refuse_unknown_modules(infos, known, str(peft_dir))
    files = dict.fromkeys(tensors, ADAPTER_FILE)
    stored = hf_side(
        [e for item in adapted for e in (item.a, item.b)],
        files,
        naming,
        single=ADAPTER_FILE,
        every_spelling=True,
    )
    check_side(stored, infos, where=str(peft_dir), dropped={})
    side = Side(stored, infos, {}, str(peft_dir))
    whole = {spell(name, back): info for name, info in saved.items()}
    return AdapterSource(side, adapted, possible, r, whole)


def refuse_several_ranks(adapter: AdapterSource) -> None:
    """Refuse an adapter whose modules have several ranks where all must have one.

    Raises:
        CheckpointError: They have.
    """
    if len({item.a.shape[0] for item in adapter.adapted}) > 1:
        raise CheckpointError(
            "the modules of the adapter have several ranks",
            where=adapter.side.where,
            why="MindSpeed-MM trains one rank",
            fix="merge it: taskpack export --base DIR --adapter DIR --hf-ref DIR --hf DIR",
        )


def _naming_in(infos: Mapping[Address, TensorInfo], config: HfConfig) -> Naming:
    """Tell how a peft file spells the names, its prefix included."""
    names = [name for _, _, name in infos]
    own = naming_of(config.family, [name.removeprefix(PEFT_PREFIX) for name in names])
    if not any(name.startswith(PEFT_PREFIX) for name in names):
        return own
    return peft_naming(own)


def _saved_modules(
    infos: Mapping[Address, TensorInfo], modules: Sequence[str]
) -> dict[str, TensorInfo]:
    """Find the tensors of modules that were trained whole, which peft saves beside the factors."""
    return {
        name: info
        for (_, _, name), info in infos.items()
        if ".lora_" not in name
        and any(f".{name.rpartition('.')[0]}".endswith(f".{module}") for module in modules)
    }


def peft_adapter_infos(peft_dir: Path) -> dict[Address, TensorInfo]:
    """Read the places of the tensors of a peft folder.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    if not (peft_dir / ADAPTER_FILE).is_file() and (peft_dir / "adapter_model.bin").is_file():
        raise CheckpointError(
            "the adapter is a pickle, adapter_model.bin",
            where=str(peft_dir / "adapter_model.bin"),
            why="adapters are read from safetensors files, which hold no code",
            fix="load it with peft and save it again: save_pretrained(DIR)",
        )
    tensors = read_safetensors(peft_dir / ADAPTER_FILE)
    return {(ADAPTER_FILE, "", name): info for name, info in tensors.items()}


def _refuse_unknown_modules(
    infos: Mapping[Address, TensorInfo], known: Sequence[str], where: str
) -> None:
    """Refuse adapter tensors of modules that the model cannot have one for.

    Raises:
        CheckpointError: There are some; with the nearest names.
    """
    patterns = {pattern_of(name.format(layer="*")) for name in known}
    modules = sorted({pattern.partition(".lora_")[0] for pattern in patterns})
    unknown = sorted(
        {
            pattern_of(name).partition(".lora_")[0]
            for _, _, name in infos
            if ".lora_" in name and pattern_of(name) not in patterns
        }
    )
    if unknown:
        raise CheckpointError(
            f"the adapter has modules that no base weight belongs to: {shorten(unknown)}",
            where=where,
            why="an adapter changes the weight of its module, and nothing is left out silently",
            fix=nearest(unknown[0], modules),
        )


def _spelled(item: Adapted) -> list[str]:
    return [n for entry in (item.a, item.b) for names in entry.spelled.values() for n in names]


def _lora_rank(infos: Mapping[Address, TensorInfo], *, where: str) -> int:
    shapes = {info.shape for (_, _, name), info in infos.items() if ".lora_A." in name}
    ranks = {shape[0] for shape in shapes if shape}
    if len(ranks) == 1:
        return ranks.pop()
    raise CheckpointError(
        f"the adapter has the LoRA ranks {sorted(ranks)}" if ranks else "there is no adapter here",
        where=where,
        why="an adapter has lora_A and lora_B tensors of one rank",
        fix="name the folder that LoRA training saved",
    )
