"""Prove a merge: every target is base plus delta, and everything else is the base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from taskpack.errors import CheckFailed, shorten
from taskpack.weights.adapter_open import open_adapter
from taskpack.weights.casts import Raw, raw_dtype, to_fp32
from taskpack.weights.copy_engine import BUFFER_BYTES, Files, read_box, worker_count
from taskpack.weights.delta import Delta
from taskpack.weights.folders import is_hf
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.hf_export import with_saved_modules
from taskpack.weights.hf_folder import hf_source
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import Said
from taskpack.weights.mm_checkpoint import mm_source
from taskpack.weights.mm_folder import read_mm_folder
from taskpack.weights.plan import Job, Replica, Target, make_plan
from taskpack.weights.replicas import differing
from taskpack.weights.run import Side
from taskpack.weights.tensors import TensorInfo
from taskpack.weights.verify import (
    model_of_folders,
    pairs_of,
    refuse_other_dtypes,
    refuse_other_rows,
)
from taskpack.weights.wide import Fp64

MAX_ULPS = 1.0
_MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
_LEAST_EXPONENT = {"bf16": -126, "fp16": -14, "fp32": -126}


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a merged tensor is from base plus delta.

    Attributes:
        name: The tensor.
        ulps: Largest deviation, in units of last place of the larger of old and new weight.
        differing: Elements that are not the exact value rounded once.
        elements: How many there are.
    """

    name: str
    ulps: float
    differing: int
    elements: int


def verify_merge(
    merged_dir: Path,
    base_dir: Path,
    adapter_dir: Path,
    *,
    hf_ref: Path | None = None,
    iteration: str = "latest",
    targets: Sequence[str] = (),
    lora: Mapping[str, Said] = MappingProxyType({}),
    max_ulps: float = MAX_ULPS,
    threads: int = 0,
) -> dict[str, Any]:
    """Compare a merged model with its base and adapter; each may be of any kind and layout.

    Args:
        merged_dir: The merged weights.
        base_dir: The base weights.
        adapter_dir: Adapter checkpoint or peft folder.
        hf_ref: Hugging Face folder, for its config where no folder tells the model.
        iteration: Which iteration of the adapter.
        targets: Modules that were merged; by default all that the adapter has.
        lora: Alpha and r from other sources, by the name of the source.
        max_ulps: Deviation in units of last place that still passes; one rounding makes 0.5.
        threads: Reading threads; 0 chooses.

    Raises:
        CheckFailed: A target deviates further, or another tensor differs from the base.
        CheckpointError: A folder is incomplete, or they hold different models.
    """
    model = model_of_folders(hf_ref, base_dir, merged_dir)
    base, layout = _side(base_dir, model)
    adapter = open_adapter(
        adapter_dir, model, base_layout=layout, iteration=iteration, targets=targets, lora=lora
    )
    model, base = with_saved_modules(model, base, adapter, where=str(adapter_dir))
    merged, _ = _side(merged_dir, model)
    refuse_other_rows(base, merged, a=base_dir, b=merged_dir)
    refuse_other_dtypes(base, merged, where=f"{merged_dir} and {base_dir}")
    plan = make_plan(merged.stored, base.stored, base.infos)
    workers = worker_count(threads)
    with adapter.delta() as delta, Files() as files:
        touched = [(job, at) for job in plan.jobs for at in job.targets if delta.touches(at)]
        names = {at.stored.address for _, at in touched}
        same = [pair.replica for pair in pairs_of(plan, merged) if pair.address not in names]
        _refuse_changes(same, merged_dir, base_dir, workers)
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(lambda pair: _deviation(pair, delta, merged, files), touched))
    _refuse_deviations(found, max_ulps, where=f"{merged_dir}, {base_dir} and {adapter_dir}")
    worst = max(found, key=lambda item: item.ulps)
    return {
        "targets": len(found),
        "unchanged": len(merged.stored) - len(found),
        "max_ulps": worst.ulps,
        "worst": worst.name,
        "differing_share": sum(i.differing for i in found) / sum(i.elements for i in found),
        "equal": True,
    }


def _refuse_deviations(found: Sequence[Deviation], max_ulps: float, *, where: str) -> None:
    beyond = [item for item in found if not item.ulps <= max_ulps]
    if beyond:
        worst = max(beyond, key=lambda item: item.ulps)
        raise CheckFailed(
            f"{len(beyond)} targets are not base plus delta: {worst.name} by {worst.ulps:.3g} units"
            " of last place",
            where=where,
            why=f"one rounding makes 0.5; up to {max_ulps:g} was allowed",
            fix="merge again with the right adapter, iteration and alpha, or raise --max-ulps",
        )


def _side(folder: Path, model: HfConfig) -> tuple[Side, Layout | None]:
    if is_hf(folder):
        own = read_hf_config(folder)
        return hf_source(folder, replace(model, tied=own.tied))[0], None
    side, layout = mm_source(read_mm_folder(folder), model, None)
    return side, layout


def _refuse_changes(pairs: Sequence[Replica], merged: Path, base: Path, workers: int) -> None:
    different = sorted({pair.tensor for pair in differing(pairs, threads=workers)})
    if different:
        raise CheckFailed(
            f"{len(different)} tensors without an adapter differ: {shorten(different)}",
            where=f"{merged} and {base}",
            why="a merge changes its targets and nothing else",
            fix="compare with the base that training started from, or name all --targets",
        )


def _deviation(pair: tuple[Job, Target], delta: Delta, merged: Side, files: Files) -> Deviation:
    job, target = pair
    info = merged.infos[target.stored.address]
    rows, width = info.shape
    step = max(1, BUFFER_BYTES // info.row_nbytes(0))
    worst, different = 0.0, 0
    for first in range(0, rows, step):
        count = min(step, rows - first)
        have = _read(info, slice(first, first + count), slice(0, width), files)
        before = np.zeros_like(have)
        for at, box in _boxes(job, target, first, count, files):
            before[at] = box
        exact = delta.exact(target, first, before, info.dtype)
        ulps = _ulps(have, before, exact, info.dtype)
        worst = max(worst, float(ulps.max(initial=0.0)))
        different += int((~(ulps <= 0.5)).sum())
    return Deviation(target.stored.name, worst, different, rows * width)


def _boxes(
    job: Job, target: Target, first: int, count: int, files: Files
) -> Iterator[tuple[tuple[slice, slice], Raw]]:
    """Yield where rows [first, first + count) of a target come from, and what stands there."""
    for move in target.moves:
        source = job.sources[move.source]
        if target.axis == 1:
            columns = slice(move.source_offset, move.source_offset + move.length)
            place = slice(move.target_offset, move.target_offset + move.length)
            box = _read(source, slice(first, first + count), columns, files)
            yield (slice(None), place), box
            continue
        begin = max(first, move.target_offset)
        end = min(first + count, move.target_offset + move.length)
        if begin < end:
            at = move.source_offset - move.target_offset
            box = _read(source, slice(at + begin, at + end), slice(0, source.shape[1]), files)
            yield (slice(begin - first, end - first), slice(None)), box


def _read(info: TensorInfo, rows: slice, columns: slice, files: Files) -> Raw:
    nbytes = (rows.stop - rows.start) * (columns.stop - columns.start) * info.row_nbytes(1)
    box = read_box(files.fd(info.path), info, rows, columns, memoryview(bytearray(nbytes)))
    return box.view(raw_dtype(info.dtype))


def _ulps(have: Raw, before: Raw, exact: Fp64, dtype: str) -> Fp64:
    """Give the distance of merged weights from the exact ones, in units of last place."""
    value = to_fp32(have, dtype).astype(np.float64)
    size = np.maximum(np.abs(value), np.abs(to_fp32(before, dtype)))
    _, exponent = np.frexp(size)
    least = _LEAST_EXPONENT[dtype]
    unit = np.ldexp(1.0, np.maximum(exponent - 1, least) - _MANTISSA_BITS[dtype])
    distance: Fp64 = np.abs(value - exact) / unit
    return np.where(np.isnan(distance), math.inf, distance)
