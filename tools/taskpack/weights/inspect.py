"""Show what a weights folder holds, from headers alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from taskpack.errors import CheckpointError
from taskpack.weights.folders import is_hf, is_mm
from taskpack.weights.hf_config import read_hf_config
from taskpack.weights.mm_folder import MmFolder, infer_layout, read_mm_folder
from taskpack.weights.safetensors_file import read_hf_tensors
from taskpack.weights.tensors import TensorInfo


def inspect_folder(folder: Path, *, iteration: str = "latest") -> dict[str, Any]:
    """Describe a Hugging Face folder or a checkpoint.

    Raises:
        CheckpointError: The folder is incomplete or damaged.
    """
    if is_hf(folder):
        return _inspect_hf(folder)
    if folder.is_dir() and not is_mm(folder):
        raise CheckpointError(
            f"{folder} holds no weights",
            where=str(folder),
            why="it has neither config.json and safetensors files, nor a tracker and rank files",
            fix="name a Hugging Face folder or a checkpoint folder",
        )
    return _inspect_mm(read_mm_folder(folder, iteration=iteration))


def _inspect_hf(folder: Path) -> dict[str, Any]:
    tensors, strays = read_hf_tensors(folder)
    config = read_hf_config(folder)
    return {
        "kind": "hf",
        "folder": str(folder),
        "family": config.family.name,
        "tied": config.tied,
        "text_layers": config.dims[config.family.layers["text"]],
        "vision_layers": config.dims[config.family.layers["vision"]],
        "shards": len({info.path for info in tensors.values()}),
        "strays": strays,
        **_totals(tensors.values()),
    }


def _inspect_mm(folder: MmFolder) -> dict[str, Any]:
    layout = folder.record.layout if folder.record is not None else infer_layout(folder)
    infos = folder.infos
    adapters = [name for _, _, name in infos if ".lora_" in name]
    first = next(iter(folder.ranks.values()))
    return {
        "kind": "mm adapter" if adapters else "mm",
        "folder": str(folder.root),
        "iteration": folder.iteration,
        "family": folder.record.family if folder.record is not None else None,
        "layout_from": "taskpack_layout.json" if folder.record is not None else "rank files",
        "tp": layout.tp_size,
        "vision_tp": layout.vision_tp_size,
        "text_layers": layout.text.to_lists(),
        "vision_layers": layout.vision.to_lists(),
        "canonical": layout.canonical,
        "ranks": len(folder.ranks),
        "besides_model": list(first.others),
        **_totals(infos.values()),
    }


def _totals(infos: Iterable[TensorInfo]) -> dict[str, Any]:
    listed = list(infos)
    return {
        "tensors": len(listed),
        "bytes": sum(info.nbytes for info in listed),
        "dtypes": sorted({info.dtype for info in listed}),
    }


def inspect_text(found: dict[str, Any]) -> str:
    """Write a description for a person, one fact a line."""
    width = max(map(len, found))
    shown = {**found, "bytes": f"{found['bytes']} ({found['bytes'] / 2**30:.2f} GiB)"}
    return "\n".join(f"{key:<{width}}  {_plain(value)}" for key, value in shown.items())


def _plain(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value)
