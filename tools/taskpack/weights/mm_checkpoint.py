"""A Megatron checkpoint as a side: its rank files, tracker and layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import (
    CheckpointError,
    ProfileError,
    TaskpackError,
    raise_collected,
    shorten,
)
from taskpack.weights.account import ACCOUNT_FILE, source_digest
from taskpack.weights.families import family_named
from taskpack.weights.folders import RANK_FILE, TRACKER_FILE, iteration_name
from taskpack.weights.hf_config import HfConfig, check_lists
from taskpack.weights.layout import LAYOUT_FILE, Layout, LayoutRecord
from taskpack.weights.mm_folder import MmFolder, resolve_layout
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.plan import check_side
from taskpack.weights.pt_write import lay_out_rank_file
from taskpack.weights.rows import entries
from taskpack.weights.run import Options, Output, Side
from taskpack.weights.sides import Stored, by_file, mm_side, model_keys, rank_files

NO_TENSOR = "no tensor: an empty _extra_state of Megatron"


def model_of(folder: MmFolder) -> HfConfig:
    """Tell the model of a checkpoint from its layout file.

    Raises:
        CheckpointError: There is no layout file, or it does not describe a model.
    """
    record = folder.record
    if record is None or not record.dims:
        raise CheckpointError(
            f"the checkpoint has no {LAYOUT_FILE} that tells its model",
            where=str(folder.root),
            why="heads and sizes of the model cannot be told from the tensors alone",
            fix="name the model with --task tasks/MODEL, or its HF folder with --hf-ref",
        )
    family = family_named(record.family, where=str(folder.root / LAYOUT_FILE))
    missing = [n for n in family.dims if n not in record.dims and not n.endswith("[]")]
    if missing:
        raise CheckpointError(
            f"the layout file lacks dimensions of the model: {shorten(missing)}",
            where=str(folder.root / LAYOUT_FILE),
            why="heads and sizes of the model are read from it",
            fix="delete the file, and name the model with --task or --hf-ref",
        )
    check_lists(family, record.dims, where=str(folder.root / LAYOUT_FILE))
    return HfConfig(family, record.dims, record.tied)


def mm_source(
    folder: MmFolder, config: HfConfig, layout: Layout | None, *, where: str = "--tp"
) -> tuple[Side, Layout]:
    """Give the places of all tensors of a Megatron checkpoint.

    Args:
        folder: The checkpoint.
        config: The model it must hold.
        layout: Layout to insist on; by default its own.
        where: What gave the layout, for messages.

    Returns:
        The side, and the layout it has.

    Raises:
        CheckpointError: It is an adapter, or of another layout or model.
    """
    refuse_adapter(folder)
    layout = resolve_layout(folder, layout, where=where)
    place = str(folder.root)
    raise_collected(layout.faults(config.dims, where=place, kind=CheckpointError))
    infos = folder.infos
    expanded = entries(config.family, config.dims, canonical=layout.canonical, tied=config.tied)
    embedding = next((i for a, i in infos.items() if "word_embeddings" in a[2]), None)
    rows = embedding.shape[0] * layout.tp_size if embedding is not None else 0
    padded = rows if rows > config.dims["V"] else 0
    if not padded and config.dims["V"] % layout.tp_size and "text" in layout.modules:
        raise CheckpointError(
            f"the embedding has {rows} rows, config.json says {config.dims['V']}",
            where=place,
            why=f"TP {layout.tp_size} does not divide that vocabulary, and it is not padded here",
            fix="use the config.json that belongs to the checkpoint",
        )
    stored = mm_side(expanded, layout, padded_vocab=padded, tied=config.tied)
    check_side(stored, infos, where=place, dropped={})
    return Side(stored, infos, extra_states(folder), place), layout


def extra_states(folder: MmFolder) -> dict[str, str]:
    """List the entries without a tensor that a checkpoint may have, with the reason to drop them.

    Raises:
        CheckpointError: There are others.
    """
    other = [name for name in folder.without_tensor if not name.endswith("_extra_state")]
    if other:
        raise CheckpointError(
            f"{len(other)} entries of the state dicts hold no tensor: {shorten(other)}",
            where=str(folder.root),
            why="only Megatron's _extra_state may be empty; nothing is dropped silently",
            fix="save the checkpoint again without them",
        )
    return dict.fromkeys(folder.without_tensor, NO_TENSOR)


def refuse_adapter(folder: MmFolder) -> None:
    """Refuse a checkpoint of adapter tensors where a model is wanted.

    Raises:
        CheckpointError: It is one.
    """
    adapters = [name for _, _, name in folder.infos if ".lora_" in name]
    if adapters:
        raise CheckpointError(
            f"the checkpoint holds {len(adapters)} adapter tensors, such as {adapters[0]}",
            where=str(folder.root),
            why="an adapter is not a model; its base weights are elsewhere",
            fix="merge it first: taskpack lora merge --base DIR --adapter DIR --out DIR",
        )


def target_faults(
    config: HfConfig, layout: Layout, options: Options, where: str
) -> list[TaskpackError]:
    """List everything that keeps a model from being written in a layout."""
    faults = layout.faults(config.dims, where=where)
    if layout.canonical and not config.family.canonical:
        faults.append(
            ProfileError(
                f"the family {config.family.name} has no canonical structure",
                where=where,
                why="MindSpeed-MM reads this family in its own structure only",
                fix="leave out canonical",
            )
        )
    rows = config.dims["V"]
    if layout.tp_size < 1 or "text" not in layout.modules or options.pad_vocab:
        return faults
    if rows % layout.tp_size == 0:
        return faults
    return [
        *faults,
        ProfileError(
            f"tensor parallel size {layout.tp_size} does not divide the vocabulary of {rows}",
            where=where,
            why="each rank holds an equal number of rows; none may be lost",
            fix=f"add --pad-vocab to pad it to {padded_vocab(config, layout)} rows of zeros",
        ),
    ]


def padded_vocab(config: HfConfig, layout: Layout) -> int:
    """Round the vocabulary up to a multiple of the tensor parallel size."""
    return -(-config.dims["V"] // layout.tp_size) * layout.tp_size


def layout_record(
    model: HfConfig,
    layout: Layout,
    source: Side,
    *,
    dtype: str,
    release: str | None,
    lora: Mapping[str, float] = MappingProxyType({}),
    merged: Mapping[str, str | float] = MappingProxyType({}),
) -> LayoutRecord:
    """Describe a checkpoint made from a source; head counts that were only inferred stay out."""
    return LayoutRecord(
        family=model.family.name,
        layout=layout,
        dtype=dtype,
        tied=model.tied,
        dims={} if model.inferred else model.dims,
        release=release,
        source=source_digest(source.infos),
        lora=lora,
        merged=merged,
    )


def mm_output(
    mm_dir: Path,
    layout: Layout,
    stored: Sequence[Stored],
    *,
    dtype: str,
    record: LayoutRecord,
    iteration: str = "release",
    ranks: Collection[str] | None = None,
) -> Output:
    """Lay out the rank files of a checkpoint, or those of some ranks."""
    folder = iteration_name(iteration)
    grouped = by_file(stored)
    outs = {
        rank: lay_out_rank_file(
            f"{folder}/{rank}/{RANK_FILE}",
            model_keys(layout),
            [TensorSpec(s.key, s.name, dtype, s.shape) for s in grouped.get(rank, [])],
        )
        for rank in rank_files(layout)
        if ranks is None or rank in ranks
    }
    return Output(
        target=mm_dir,
        outs=outs,
        texts={LAYOUT_FILE: record.to_text(), TRACKER_FILE: iteration},
        account_of=lambda path: path.replace(RANK_FILE, ACCOUNT_FILE),
    )
