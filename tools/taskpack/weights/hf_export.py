"""Merge and convert in one pass: base and adapter of any kind to one Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.account import Account
from taskpack.weights.adapter_open import OpenAdapter, open_adapter
from taskpack.weights.blocks import Piece
from taskpack.weights.convert import untied
from taskpack.weights.folders import is_hf
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.hf_folder import head_and_embedding, hf_output, hf_source
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import Said
from taskpack.weights.merge import MergeReport
from taskpack.weights.merge_record import merged_into_hf, merged_into_mm, refuse_second_merge
from taskpack.weights.mm_checkpoint import mm_source
from taskpack.weights.mm_folder import MmFolder, read_mm_folder
from taskpack.weights.plan import refuse_other_types
from taskpack.weights.run import DEFAULT_OPTIONS, Options, Side, dtype_to_write, run
from taskpack.weights.sides import Stored
from taskpack.weights.target import check_target
from taskpack.weights.tensors import TensorInfo

SHARD_LIMIT = 5_000_000_000
"""Bytes of a shard, as save_pretrained has it by default."""
REPLACED = "the adapter has this module whole (modules_to_save)"


def export(
    base_dir: Path,
    hf_ref: Path,
    hf_dir: Path,
    *,
    adapter_dir: Path | None = None,
    layout: Layout | None = None,
    iteration: str = "latest",
    targets: Sequence[str] = (),
    lora: Mapping[str, Said] = MappingProxyType({}),
    options: Options = DEFAULT_OPTIONS,
) -> Account | MergeReport:
    """Write a Hugging Face folder from base weights and, if given, an adapter.

    Args:
        base_dir: Base weights: a checkpoint, or a Hugging Face folder.
        hf_ref: The original Hugging Face folder: config, names and side files.
        hf_dir: Folder to make, in shards of at most `SHARD_LIMIT` bytes.
        adapter_dir: Adapter checkpoint of any layout, or a peft folder.
        layout: Layout to insist on for a base checkpoint.
        iteration: Which iteration of the adapter, or without one of the base.
        targets: Modules to merge, such as `linear_qkv`; by default all that the adapter has.
        lora: Alpha and r from other sources, by the name of the source.
        options: See `Options`.

    Raises:
        CheckpointError: Base or adapter are incomplete, do not fit, or nothing would be merged.
        ProfileError: Alpha is unknown or contradicted, or a target is no module of the family.
        HostError: The target is not free, or the disk too small.
    """
    inputs = [folder for folder in (base_dir, hf_ref, adapter_dir) if folder is not None]
    check_target(hf_dir, inputs, overwrite=options.overwrite, resume=options.resume)
    model = read_hf_config(hf_ref)
    folder = None
    if not is_hf(base_dir):
        chosen = iteration if adapter_dir is None else "latest"
        folder = read_mm_folder(base_dir, iteration=chosen)
    if options.untie:
        model = untied(model, lambda one: _base(base_dir, folder, one, layout)[0])
    source, base_layout = _base(base_dir, folder, model, layout)
    dtype = dtype_to_write(source, options)
    merged = merged_into_hf(base_dir) if folder is None else merged_into_mm(folder)
    lay_out = partial(hf_output, hf_dir, hf_ref, dtype=dtype, shard_limit=SHARD_LIMIT)
    if adapter_dir is None:
        output, stored = lay_out(model, merged=merged)
        return run(source, stored, output, dtype=dtype, options=options)
    adapter = open_adapter(
        adapter_dir,
        model,
        base_layout=base_layout,
        iteration=iteration,
        targets=targets,
        lora=lora,
    )
    model, source = with_saved_modules(model, source, adapter, where=str(adapter_dir))
    with adapter.delta() as delta:
        refuse_second_merge(merged, delta.digest, base=base_dir)
        output, stored = lay_out(model, merged=adapter.note(delta.digest))
        account = run(source, stored, output, dtype=dtype, options=options, change=delta)
    return MergeReport.of(account, adapter)


def _base(
    base_dir: Path, folder: MmFolder | None, model: HfConfig, layout: Layout | None
) -> tuple[Side, Layout | None]:
    if folder is None:
        return hf_source(base_dir, model)[0], None
    return mm_source(folder, model, layout)


def with_saved_modules(
    model: HfConfig, source: Side, adapter: OpenAdapter, *, where: str
) -> tuple[HfConfig, Side]:
    """Put the modules that an adapter holds whole in the place of the base's.

    Args:
        model: The base model.
        source: Its tensors.
        adapter: The adapter.
        where: Its folder, for messages.

    Returns:
        The model, untied where the adapter has a head of its own, and the tensors.

    Raises:
        CheckpointError: A module is none of the model's, or the embedding of a tied model.
    """
    saved = adapter.source.saved
    if not saved:
        return model, source
    head, embedding = head_and_embedding(model)
    if model.tied and embedding in saved:
        raise CheckpointError(
            "the adapter has an embedding of its own, but the model shares it with the head",
            where=where,
            why="it is not known whether the head was trained with it",
            fix="merge it with peft, then convert the merged model",
        )
    model = replace(model, tied=model.tied and head not in saved)
    infos: dict[tuple[str, str, str], TensorInfo] = dict(source.infos)
    stored, dropped = [], dict(source.dropped)
    for item in source.stored:
        if item.pieces[0].tensor in saved:
            dropped[item.name] = REPLACED
        else:
            stored.append(item)
    replaced = {item.pieces[0].tensor for item in source.stored} | {head}
    unknown = sorted(saved.keys() - replaced)
    if unknown:
        raise CheckpointError(
            f"the adapter has modules that the model has not: {shorten(unknown)}",
            where=where,
            why="every trained weight must go somewhere",
            fix="name the model that the adapter was trained on with --hf-ref",
        )
    for name, info in saved.items():
        own = Stored(info.path.name, "", name, info.shape, 0, (Piece(name, 0, info.shape[0], 0),))
        stored.append(own)
        infos[own.address] = info
    refuse_other_types(infos, where=where)
    return model, Side(stored, infos, dropped, source.where)
