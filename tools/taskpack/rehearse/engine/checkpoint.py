"""Checkpoints in MindSpeed-MM's layout, written by our converters and wrapped as it wraps them."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.rehearse.hf_weights import hub_name, write_json, write_shards
from taskpack.weights import Layout, hf_to_mm, mm_to_hf, peft_to_mm
from taskpack.weights.adapter import adapted_entries
from taskpack.weights.adapter_open import module_name
from taskpack.weights.folders import RANK_FILE, TRACKER_FILE, iteration_name
from taskpack.weights.hf_config import read_hf_config
from taskpack.weights.rows import entries

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taskpack.rehearse.engine.model import Trainable


def load_as_hf(load: Path, hf_ref: Path, hf_dir: Path, *, layout: Layout) -> None:
    """Join the rank files into an HF folder; the layout must be the one the flags ask for."""
    mm_to_hf(load, hf_ref, hf_dir, layout=layout, where="flags of pretrain_vlm.py and model.json")


def save_peft(peft: Any, folder: Path) -> None:
    """Write what trained as a peft adapter, in bfloat16 as MindSpeed-MM saves it."""
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.bfloat16).clone().contiguous()
        for name, tensor in get_peft_model_state_dict(peft).items()
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    peft.peft_config["default"].save_pretrained(folder)


def save_hf(model: nn.Module, hf_ref: Path, folder: Path) -> None:
    """Write the weights as an HF folder of published names, in bfloat16."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(hf_ref / "config.json", folder / "config.json")
    write_shards(
        folder,
        (
            (hub_name(name), parameter.detach().to(torch.bfloat16))
            for name, parameter in model.named_parameters()
        ),
    )


def save_iteration(
    trainable: Trainable,
    iteration: int,
    save: Path,
    *,
    layout: Layout,
    hf_ref: Path,
    args: argparse.Namespace,
) -> None:
    """Write `iter_XXXXXXX` and then the tracker, as the trainer does.

    The trainer also stores its rerun state machine, an object of Megatron's own classes, which no
    reader needs; it is left out.
    """
    save.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=save, prefix=".saving-") as scratch:
        plain, mm_dir = Path(scratch) / "plain", Path(scratch) / "mm"
        if trainable.peft is None:
            save_hf(trainable.model, hf_ref, plain)
            hf_to_mm(plain, mm_dir, layout=layout, iteration=str(iteration))
        else:
            save_peft(trainable.peft, plain)
            peft_to_mm(
                plain, read_hf_config(hf_ref), mm_dir, layout=layout, iteration=str(iteration)
            )
        folder = save / iteration_name(str(iteration))
        axes = parallel_axes(hf_ref, canonical=layout.canonical)
        for source in sorted(mm_dir.glob(f"{folder.name}/*/{RANK_FILE}")):
            _wrap(source, folder / source.parent.name / RANK_FILE, iteration, args, axes)
    (save / TRACKER_FILE).write_text(str(iteration))


def parallel_axes(hf_ref: Path, *, canonical: bool) -> dict[str, int]:
    """Name the parallel linears, such as `linear_qkv`, and the axis each is cut on."""
    config = read_hf_config(hf_ref)
    base = entries(config.family, config.dims, canonical=canonical, tied=config.tied)
    axes = {module_name(item): item.base.axis or 0 for item in adapted_entries(base, 1)}
    return {**axes, "output_layer": 0}


def _wrap(
    source: Path, target: Path, iteration: int, args: argparse.Namespace, axes: Mapping[str, int]
) -> None:
    import torch

    content = torch.load(source, weights_only=True)
    state: dict[str, Any] = {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "num_floating_point_operations_so_far": 0,
    }
    for key, value in content.items():
        if key.startswith("model"):
            state[key] = _with_extra_states(value, axes)
    target.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, target)


def _with_extra_states(
    tensors: Mapping[str, torch.Tensor], axes: Mapping[str, int]
) -> dict[str, torch.Tensor | None]:
    """Add the empty `_extra_state` entries that Megatron's parallel linears leave behind."""
    result: dict[str, torch.Tensor | None] = {}
    for name, tensor in tensors.items():
        result[name] = tensor
        module = name.removesuffix(".weight")
        if module != name and _is_parallel(module.split("."), axes):
            result[f"{module}._extra_state"] = None
    return result


def _is_parallel(path: list[str], axes: Mapping[str, int]) -> bool:
    """Of an adapter only the half that is cut over the ranks is such a linear."""
    if path[-1] == "default":
        return path[-2] == ("lora_A" if axes[path[-3]] == 1 else "lora_B")
    return path[-1] in axes


def keep_trained(
    trainable: Trainable, folder: Path, *, hf_ref: Path, losses: Iterable[float]
) -> None:
    """Keep what trained in plain HF or peft form, for checks that owe nothing to our layout."""
    if trainable.peft is None:
        save_hf(trainable.model, hf_ref, folder)
    else:
        save_peft(trainable.peft, folder)
    write_json(folder / "losses.json", {"losses": list(losses)})


def read_losses(folder: Path) -> list[float]:
    """Read the losses that `keep_trained` noted, one per step."""
    losses: list[float] = json.loads((folder / "losses.json").read_text())["losses"]
    return losses
