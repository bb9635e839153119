"""Names and shards of HF folders that the rehearsal writes itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SHARDS = 4
"""Several, as published models have, however narrow this one is."""

# Names as on the hub; transformers >= 4.52 nests both towers below `model.` in memory.
HUB_PREFIXES = {"model.language_model.": "model.", "model.visual.": "visual."}


def hub_name(name: str) -> str:
    """Turn a name that transformers uses in memory into the published one."""
    for inside, published in HUB_PREFIXES.items():
        if name.startswith(inside):
            return published + name.removeprefix(inside)
    return name


def write_shards(folder: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write tensors as several safetensors files with their index."""
    from safetensors.torch import save_file

    named = list(tensors)
    total_bytes = sum(tensor.nbytes for _, tensor in named)
    shards: list[dict[str, torch.Tensor]] = [{}]
    written_bytes = 0
    for name, tensor in named:
        if written_bytes >= total_bytes * len(shards) / SHARDS:
            shards.append({})
        shards[-1][name] = tensor
        written_bytes += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file_name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, file_name))
    index = {
        "metadata": {"total_size": total_bytes},
        "weight_map": dict(sorted(weight_map.items())),
    }
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file for people and programs."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
