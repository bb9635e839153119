"""A model whose every element says which tensor, row and column it comes from."""

import json
from pathlib import Path

import golden_inputs
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from taskpack.parallel import PipelineSplit
from taskpack.weights import Layout

NAMES = sorted(golden_inputs.shapes(tied=False))


def address_of(bits: int) -> tuple[str, int, int]:
    """Turn an element back into (HF tensor, row, column)."""
    return NAMES[bits >> 22], bits >> 12 & 0x3FF, bits & 0xFFF


def tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    rows = shape[0]
    columns = int(np.prod(shape[1:], dtype=np.int64))
    bits = (
        (NAMES.index(name) << 22)
        + (np.arange(rows)[:, None] << 12)
        + (np.arange(columns)[None, :] & 0xFFF)
    )
    return torch.from_numpy(bits.astype(np.int32)).view(torch.float32).reshape(shape).clone()


def make_hf(folder: Path, *, tied: bool = False, new_names: bool = False, vocab: int = 0) -> Path:
    golden_inputs.make_hf(folder, tied=tied, shards=1)
    for stale in folder.glob("model*"):
        stale.unlink()
    shapes = golden_inputs.shapes(tied=tied)
    if vocab:
        shapes |= {name: (vocab, shape[1]) for name, shape in shapes.items() if "320" in str(shape)}
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"vocab_size": vocab}))
    tensors = {name: tensor(name, shape) for name, shape in shapes.items()}
    if new_names:
        tensors = {_renamed(name): value for name, value in tensors.items()}
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


def _renamed(name: str) -> str:
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


def layout(tp: int, text: list, vision: list, **more: object) -> Layout:
    return Layout(tp, PipelineSplit.parse(text), PipelineSplit.parse(vision), **more)


def rank(folder: Path, name: str, key: str = "model") -> dict[str, torch.Tensor]:
    content = torch.load(folder / "release" / name / "model_optim_rng.pt", weights_only=True)
    return content[key]


def rows_of(value: torch.Tensor) -> list[tuple[str, int]]:
    """List (HF tensor, row) of each row of a tensor, from its first column."""
    first = value.reshape(value.shape[0], -1)[:, 0].contiguous().view(torch.int32)
    return [address_of(bits)[:2] for bits in first.tolist()]


def columns_of(value: torch.Tensor) -> list[tuple[str, int]]:
    """List (HF tensor, column) of each column of a tensor, from its first row."""
    return [
        (name, column)
        for name, _, column in map(address_of, value[0].contiguous().view(torch.int32).tolist())
    ]


def hf_tensors(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(str(path))
    return found
