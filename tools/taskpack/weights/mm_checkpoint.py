"""A Megatron checkpoint as a side: its rank files, tracker and layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from taskpack.errors import CheckpointError, ProfileError, TaskpackError, raise_collected
from taskpack.weights.account import ACCOUNT_FILE
from taskpack.weights.families import family_named
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import LAYOUT_FILE, Layout, LayoutRecord, read_layout
from taskpack.weights.mm_folder import TRACKER_FILE, read_mm_folder, resolve_layout
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.plan import Address, check_side
from taskpack.weights.pt_write import RANK_FILE, lay_out_rank_file
from taskpack.weights.rows import entries
from taskpack.weights.run import Options, Output, Side
from taskpack.weights.sides import Stored, by_file, mm_side, model_keys, rank_files
from taskpack.weights.tensors import TensorInfo

NO_TENSOR = "no tensor: an empty _extra_state of Megatron"


def model_of(mm_dir: Path) -> HfConfig:
    """Tell the model of a checkpoint from its layout file.

    Raises:
        CheckpointError: There is no layout file.
    """
    record = read_layout(mm_dir)
    if record is None or not record.dims:
        raise CheckpointError(
            f"the checkpoint has no {LAYOUT_FILE} that tells its model",
            where=str(mm_dir),
            why="heads and sizes of the model cannot be told from the tensors alone",
            fix="name the model with --task tasks/MODEL, or its HF folder with --hf-ref",
        )
    family = family_named(record.family, where=str(mm_dir / LAYOUT_FILE))
    return HfConfig(family, record.dims, record.tied)


def mm_source(
    mm_dir: Path,
    config: HfConfig,
    layout: Layout | None,
    *,
    iteration: str = "latest",
    where: str = "--tp",
) -> tuple[Side, Layout]:
    """Read the places of all tensors of a Megatron checkpoint.

    Returns:
        The side, and the layout it has.
    """
    folder = read_mm_folder(mm_dir, iteration=iteration)
    layout = resolve_layout(folder, layout, where=where)
    raise_collected(layout.faults(config.dims, where=str(mm_dir)))
    infos = folder.infos
    _refuse_adapter(mm_dir, infos)
    expanded = entries(config.family, config.dims, canonical=layout.canonical, tied=config.tied)
    embedding = next((i for a, i in infos.items() if "word_embeddings" in a[2]), None)
    rows = embedding.shape[0] * layout.tp_size if embedding is not None else 0
    padded = rows if rows > config.dims["V"] else 0
    stored = mm_side(expanded, layout, padded_vocab=padded, tied=config.tied)
    check_side(stored, infos, where=str(mm_dir), dropped={})
    dropped = dict.fromkeys(folder.without_tensor, NO_TENSOR)
    return Side(stored, infos, dropped, str(mm_dir)), layout


def _refuse_adapter(mm_dir: Path, infos: Mapping[Address, TensorInfo]) -> None:
    adapters = [name for _, _, name in infos if ".lora_" in name]
    if adapters:
        raise CheckpointError(
            f"the checkpoint holds {len(adapters)} adapter tensors, such as {adapters[0]}",
            where=str(mm_dir),
            why="an adapter is not a model; its base weights are elsewhere",
            fix="merge it first: taskpack lora merge --base DIR --adapter DIR --out DIR",
        )


def vocab_faults(
    config: HfConfig, layout: Layout, options: Options, where: str
) -> list[TaskpackError]:
    """List the fault of a vocabulary that tensor parallelism does not divide."""
    rows = config.dims["V"]
    if "text" not in layout.modules or rows % layout.tp_size == 0 or options.pad_vocab:
        return []
    return [
        ProfileError(
            f"tensor parallel size {layout.tp_size} does not divide the vocabulary of {rows}",
            where=where,
            why="each rank holds an equal number of rows; none may be lost",
            fix=f"add --pad-vocab to pad it to {padded_vocab(config, layout)} rows of zeros",
        )
    ]


def padded_vocab(config: HfConfig, layout: Layout) -> int:
    """Round the vocabulary up to a multiple of the tensor parallel size."""
    return -(-config.dims["V"] // layout.tp_size) * layout.tp_size


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
    folder = "release" if iteration == "release" else f"iter_{int(iteration):07d}"
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
