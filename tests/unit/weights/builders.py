"""Small Hugging Face folders written byte by byte, and readers that owe nothing to the package.

Every element of a 16 bit tensor holds the number of its tensor and of its row, so a misplaced row
says where it came from. Shapes and names are spelled here once more on purpose.
"""

import json
import struct
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from taskpack.cli import main

Array = np.ndarray[Any, Any]
DIMS = {
    "layers": 4,
    "hidden": 32,
    "heads": 4,
    "groups": 2,
    "ffn": 24,
    "vocab": 40,
    "depth": 4,
    "vision": 16,
    "vision_heads": 2,
    "vision_ffn": 32,
}
INDEX = "model.safetensors.index.json"
LAYOUT_FLAGS = ("--tp", "2", "--llm-layers", "[1,3]", "--vit-layers", "[4,0]")
_ITEM = {"bf16": ("BF16", "<u2"), "fp16": ("F16", "<u2"), "fp32": ("F32", "<u4")}


def shapes(
    *, tied: bool = False, family: str = "qwen2_5_vl", **dims: int
) -> dict[str, tuple[int, ...]]:
    """Shape of every HF tensor, with the names from before transformers 4.52."""
    d = DIMS | dims
    found: dict[str, tuple[int, ...]] = {
        "visual.patch_embed.proj.weight": (d["vision"], 3, 2, 14, 14),
        "model.embed_tokens.weight": (d["vocab"], d["hidden"]),
        "model.norm.weight": (d["hidden"],),
    }
    if not tied:
        found["lm_head.weight"] = (d["vocab"], d["hidden"])
    modules = dict(_vision(d, gated=family == "qwen2_5_vl"))
    modules |= {name: module for layer in range(d["layers"]) for name, module in _text(d, layer)}
    for module, (bias, *shape) in modules.items():
        found[f"{module}.weight"] = tuple(shape)
        if bias:
            found[f"{module}.bias"] = (shape[0],)
    return found


Module = tuple[str, tuple[int, ...]]
"""HF module, then whether it has a bias, rows and (for a linear) columns."""


def _vision(d: Mapping[str, int], *, gated: bool) -> Iterator[Module]:
    vision, ffn, merged = d["vision"], d["vision_ffn"], 4 * d["vision"]
    yield "visual.merger.ln_q", (not gated, vision)
    yield "visual.merger.mlp.0", (True, merged, merged)
    yield "visual.merger.mlp.2", (True, d["hidden"], merged)
    for layer in range(d["depth"]):
        block = f"visual.blocks.{layer}"
        yield f"{block}.norm1", (not gated, vision)
        yield f"{block}.norm2", (not gated, vision)
        yield f"{block}.attn.qkv", (True, 3 * vision, vision)
        yield f"{block}.attn.proj", (True, vision, vision)
        for name in ("gate_proj", "up_proj") if gated else ("fc1",):
            yield f"{block}.mlp.{name}", (True, ffn, vision)
        yield f"{block}.mlp.{'down_proj' if gated else 'fc2'}", (True, vision, ffn)


def _text(d: Mapping[str, int], layer: int) -> Iterator[Module]:
    hidden, block = d["hidden"], f"model.layers.{layer}"
    keys = hidden // d["heads"] * d["groups"]
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{block}.{name}", (False, hidden)
    for name, rows in (("q", hidden), ("k", keys), ("v", keys)):
        yield f"{block}.self_attn.{name}_proj", (True, rows, hidden)
    yield f"{block}.self_attn.o_proj", (False, hidden, hidden)
    for name in ("gate", "up"):
        yield f"{block}.mlp.{name}_proj", (False, d["ffn"], hidden)
    yield f"{block}.mlp.down_proj", (False, hidden, d["ffn"])


def new_name(name: str) -> str:
    """Spell a name as transformers does from 4.52 on."""
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


def config(*, tied: bool = False, family: str = "qwen2_5_vl", **dims: int) -> dict[str, Any]:
    """Give a config.json as the hub has it."""
    d = DIMS | dims
    vision: dict[str, Any] = {
        "depth": d["depth"],
        "num_heads": d["vision_heads"],
        "in_channels": 3,
        "temporal_patch_size": 2,
        "patch_size": 14,
        "spatial_merge_size": 2,
    }
    if family == "qwen2_5_vl":
        vision |= {"hidden_size": d["vision"], "intermediate_size": d["vision_ffn"]}
    else:
        ratio = d["vision_ffn"] // d["vision"]
        vision |= {"embed_dim": d["vision"], "hidden_size": d["hidden"], "mlp_ratio": ratio}
    return {
        "model_type": family,
        "hidden_size": d["hidden"],
        "num_hidden_layers": d["layers"],
        "num_attention_heads": d["heads"],
        "num_key_value_heads": d["groups"],
        "intermediate_size": d["ffn"],
        "vocab_size": d["vocab"],
        "tie_word_embeddings": tied,
        "vision_config": vision,
    }


def values(number: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Give raw elements that hold the tensor's number and the row; never NaN or infinity."""
    number += number // 127  # an exponent of ones would be NaN in some rows
    assert number < 255
    item = np.dtype(_ITEM[dtype][1])
    rows = (np.arange(shape[0]) & 0xFF) + (number << 8)
    bits = np.asarray(rows << 16 if item.itemsize == 4 else rows, item)
    return np.broadcast_to(bits.reshape(-1, *[1] * (len(shape) - 1)), shape)


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, Array]]) -> None:
    """Write a file from raw elements: header length, header, bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, raw) in tensors.items():
        offsets = [at, at + raw.nbytes]
        header[name] = {"dtype": dtype, "shape": list(raw.shape), "data_offsets": offsets}
        at += raw.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(np.ascontiguousarray(raw).tobytes() for _, raw in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path: Path) -> dict[str, tuple[str, Array]]:
    """Read a file back into raw elements."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    types = {name: np.dtype(item) for name, item in _ITEM.values()}
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        raw = np.frombuffer(content[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        found[name] = (entry["dtype"], raw)
    return found


def make_hf(
    folder: Path,
    *,
    tied: bool = False,
    naming: str = "old",
    shards: int = 3,
    family: str = "qwen2_5_vl",
    dtype: str = "bf16",
    **dims: int,
) -> Path:
    """Make a folder; with one shard it has no index."""
    folder.mkdir(parents=True)
    spelled = new_name if naming == "new" else str
    made = {
        spelled(name): (_ITEM[dtype][0], values(number, shape, dtype))
        for number, (name, shape) in enumerate(shapes(tied=tied, family=family, **dims).items())
    }
    names = list(made)
    weight_map = {}
    for shard in range(shards):
        file = "model.safetensors"
        if shards > 1:
            file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]
        write_safetensors(folder / file, {name: made[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    if shards > 1:
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index))
    text = json.dumps(config(tied=tied, family=family, **dims))
    (folder / "config.json").write_text(text)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def make_adapter(
    folder: Path,
    base: Path,
    *,
    r: int = 4,
    alpha: float | None = 8.0,
    modules: tuple[str, ...] = ("linear_qkv", "linear_proj"),
    top: Mapping[str, Any] | None = None,
) -> Path:
    """Save an adapter as training does, one for each text module of a checkpoint.

    Args:
        folder: Folder to make.
        base: The checkpoint; its rank folders and shapes are taken over.
        r: LoRA rank.
        alpha: Saved in `args`; None saves no `args`.
        modules: Modules that get an adapter.
        top: Further top level keys.
    """
    for path in sorted(base.glob("release/mp_rank_*/model_optim_rng.pt")):
        state: dict[str, torch.Tensor] = {}
        for name, value in torch.load(path, weights_only=True)["model"].items():
            module = name.removesuffix(".weight")
            if not name.startswith("text_decoder.") or module.rpartition(".")[2] not in modules:
                continue
            rows, columns = value.shape
            state[f"{module}.lora_A.default.weight"] = torch.ones(r, columns, dtype=value.dtype)
            state[f"{module}.lora_B.default.weight"] = torch.ones(rows, r, dtype=value.dtype)
        content: dict[str, Any] = {"model": state, "iteration": 3, **(top or {})}
        if alpha is not None:
            content["args"] = Namespace(lora_alpha=alpha, lora_r=r)
        target = folder / "iter_0000003" / path.parent.name / path.name
        target.parent.mkdir(parents=True)
        torch.save(content, target)
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    return folder


def read_hf(folder: Path) -> dict[str, Array]:
    """Give every tensor of an HF folder as raw 16 or 32 bit elements."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as file:
            found |= {name: raw(file.get_tensor(name)) for name in list(file.keys())}
    return found


def read_mm(folder: Path, iteration: str = "release") -> dict[tuple[str, str, str], Array]:
    """Give every tensor of a checkpoint by (rank folder, state dict, name)."""
    return {
        (path.parent.name, key, name): raw(value)
        for path in sorted((folder / iteration).glob("*/model_optim_rng.pt"))
        for key, state in torch.load(path, weights_only=True).items()
        if key.startswith("model")
        for name, value in state.items()
    }


def raw(value: torch.Tensor) -> Array:
    """Give the bits of a tensor."""
    kind = torch.int16 if value.element_size() == 2 else torch.int32
    return value.contiguous().view(kind).numpy()


def tree(folder: Path) -> dict[str, bytes]:
    """Give every file below a folder with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def convert(hf: Path, mm: Path, *more: str) -> int:
    """Run `taskpack convert hf-to-mm` in this process."""
    layout = () if "--tp" in more else LAYOUT_FLAGS
    return run("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *layout, *more)


def run(*arguments: object) -> int:
    """Run the command line in this process and give its exit code."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as exit_:  # argparse leaves this way
        assert isinstance(exit_.code, int)
        return exit_.code


LABELS = ("error: ", "  where: ", "  why:   ", "  fix:   ")


class Refusals:
    """Runs commands that must be refused.

    Args:
        capsys: Reads what they print.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, code: int, *command: object, out: Path | None = None) -> str:
        """Check the exit code, the four lines, and that nothing was written.

        Args:
            code: The documented exit code.
            command: Arguments of `taskpack`.
            out: The folder that the command was to make.

        Returns:
            What it said.
        """
        self._capsys.readouterr()
        assert run(*command) == code, self._capsys.readouterr().err
        said = self._capsys.readouterr().err
        lines = said.rstrip("\n").split("\n")
        errors = [line for line in lines if line.startswith(LABELS)]
        assert len(errors) >= 4 and len(errors) % 4 == 0, said
        for number, line in enumerate(errors):
            label = LABELS[number % 4]
            assert line.startswith(label) and len(line) > len(label), said
        if out is not None:
            assert not out.exists() and not out.with_name(f"{out.name}.partial").exists()
        return said
