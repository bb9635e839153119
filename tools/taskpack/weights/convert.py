"""Convert between Hugging Face folders and Megatron checkpoints: two sides and one plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import raise_collected
from taskpack.weights.account import Account
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.hf_folder import head_and_embedding, hf_output, hf_source
from taskpack.weights.layout import Layout
from taskpack.weights.merge_record import Merged, merged_into_hf, merged_into_mm
from taskpack.weights.mm_checkpoint import (
    layout_record,
    mm_output,
    mm_source,
    model_of,
    padded_vocab,
    target_faults,
)
from taskpack.weights.mm_folder import MmFolder, read_mm_folder
from taskpack.weights.plan import make_plan
from taskpack.weights.replicas import differing
from taskpack.weights.rows import entries
from taskpack.weights.run import DEFAULT_OPTIONS, Options, Side, dtype_to_write, run
from taskpack.weights.sides import mm_side
from taskpack.weights.target import check_target

log = logging.getLogger(__name__)


def hf_to_mm(
    hf_dir: Path,
    mm_dir: Path,
    *,
    layout: Layout,
    iteration: str = "release",
    options: Options = DEFAULT_OPTIONS,
    where: str = "--tp",
) -> Account:
    """Convert a Hugging Face folder to a Megatron checkpoint of a layout.

    Args:
        hf_dir: Folder with config.json and safetensors files.
        mm_dir: Folder to make: `release/mp_rank_TT[_PPP]/model_optim_rng.pt` and the tracker.
        layout: The layout.
        iteration: `release`, or a number to write it under.
        options: See `Options`.
        where: What gave the layout, for messages.

    Raises:
        ProfileError: The model cannot have this layout.
        CheckpointError: The source is incomplete or damaged.
        HostError: The target is not free, or the disk too small.
    """
    check_target(mm_dir, [hf_dir], overwrite=options.overwrite, resume=options.resume)
    config = read_hf_config(hf_dir)
    if options.untie:
        config = untied(config, lambda model: hf_source(hf_dir, model)[0])
    raise_collected(target_faults(config, layout, options, where))
    source, strays = hf_source(hf_dir, config, layout)
    return _write_mm(
        source,
        mm_dir,
        config,
        layout,
        options=options,
        iteration=iteration,
        strays=strays,
        merged=merged_into_hf(hf_dir),
    )


def mm_to_hf(
    mm_dir: Path,
    hf_ref: Path,
    hf_dir: Path,
    *,
    layout: Layout | None = None,
    iteration: str = "latest",
    options: Options = DEFAULT_OPTIONS,
    where: str = "--tp",
) -> Account:
    """Convert a Megatron checkpoint back to a Hugging Face folder.

    Args:
        mm_dir: Checkpoint folder.
        hf_ref: The original Hugging Face folder: config, names, shards and side files.
        hf_dir: Folder to make.
        layout: Layout to insist on; by default the checkpoint's own.
        iteration: `latest`, `release` or a number.
        options: See `Options`.
        where: What gave the layout, for messages.

    Raises:
        CheckpointError: The checkpoint is incomplete, damaged, or of another layout or model.
        HostError: The target is not free, or the disk too small.
    """
    check_target(hf_dir, [mm_dir, hf_ref], overwrite=options.overwrite, resume=options.resume)
    config = read_hf_config(hf_ref)
    folder = read_mm_folder(mm_dir, iteration=iteration)
    read = partial(_read_mm, folder, layout=layout, where=where)
    if options.untie:
        config = untied(config, read)
    source = read(config)
    dtype = dtype_to_write(source, options)
    output, stored = hf_output(hf_dir, hf_ref, config, dtype=dtype, merged=merged_into_mm(folder))
    return run(source, stored, output, dtype=dtype, options=options)


def resplit(
    mm_dir: Path,
    out_dir: Path,
    *,
    target: Layout,
    source: Layout | None = None,
    model: HfConfig | None = None,
    iteration: str = "latest",
    options: Options = DEFAULT_OPTIONS,
    where: str = "--tp",
) -> Account:
    """Cut a Megatron checkpoint for another layout, without a detour.

    Args:
        mm_dir: Checkpoint folder.
        out_dir: Folder to make.
        target: Layout to cut for.
        source: Layout to insist on for the checkpoint; by default its own.
        model: The model; by default what the checkpoint's layout file says.
        iteration: `latest`, `release` or a number.
        options: See `Options`.
        where: What gave the source layout, for messages.

    Raises:
        ProfileError: The model cannot have the target layout.
        CheckpointError: The checkpoint is incomplete, damaged, or of another layout or model.
        HostError: The target is not free, or the disk too small.
    """
    check_target(out_dir, [mm_dir], overwrite=options.overwrite, resume=options.resume)
    folder = read_mm_folder(mm_dir, iteration=iteration)
    config = model or model_of(folder)
    flags = "--to-tp, --to-llm-layers, --to-vit-layers"
    raise_collected(target_faults(config, target, options, flags))
    read = partial(_read_mm, folder, layout=source, where=where)
    if options.untie:
        config = untied(config, read)
    return _write_mm(
        read(config), out_dir, config, target, options=options, merged=merged_into_mm(folder)
    )


def untied(config: HfConfig, read: Callable[[HfConfig], Side]) -> HfConfig:
    """Give the model with a head of its own, where its head differs from the embedding.

    Args:
        config: The model as its config describes it.
        read: Reads the source for a model.
    """
    if not config.tied:
        return config
    source = read(config)
    replicas = make_plan([], source.stored, source.infos).replicas
    heads = [item for item in replicas if item.tensor == head_and_embedding(config)[1]]
    if not differing(heads, threads=1):
        log.info("the head equals the embedding and stays tied")
        return config
    log.warning("note: the head differs from the embedding and is kept as a tensor of its own")
    return replace(config, tied=False)


def _read_mm(folder: MmFolder, config: HfConfig, *, layout: Layout | None, where: str) -> Side:
    return mm_source(folder, config, layout, where=where)[0]


def _write_mm(
    source: Side,
    mm_dir: Path,
    config: HfConfig,
    layout: Layout,
    *,
    options: Options,
    iteration: str = "release",
    strays: Sequence[str] = (),
    merged: Merged = MappingProxyType({}),
) -> Account:
    stored = mm_side(
        entries(config.family, config.dims, canonical=layout.canonical, tied=config.tied),
        layout,
        padded_vocab=padded_vocab(config, layout) if options.pad_vocab else 0,
        tied=config.tied,
    )
    dtype = dtype_to_write(source, options)
    record = layout_record(
        config, layout, source, dtype=dtype, release=options.release, merged=merged
    )
    output = mm_output(
        mm_dir,
        layout,
        stored,
        dtype=dtype,
        record=record,
        iteration=iteration,
        ranks=options.ranks,
    )
    return run(source, stored, output, dtype=dtype, options=options, strays=strays)
