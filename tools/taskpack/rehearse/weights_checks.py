"""Checks on bytes: what went into rank files comes out again, and only what trained has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.errors import shorten
from taskpack.rehearse.hf_weights import hub_name
from taskpack.rehearse.outcome import Check
from taskpack.weights.folders import RANK_FILE

if TYPE_CHECKING:
    import torch


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """Map the tensors of an HF folder, under published names."""
    from safetensors.torch import load_file

    return {
        hub_name(name): tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def check_accounted(mm_dir: Path, base: Path, round_trip: Path, *, rank_files: int) -> Check:
    """Count rank files and names: nothing lost on the way in or out, nothing invented."""
    import torch

    found = sorted(mm_dir.glob(f"release/*/{RANK_FILE}"))
    placed = sum(
        len(tensors)
        for path in found
        for key, tensors in torch.load(path, weights_only=True, mmap=True).items()
        if key.startswith("model")
    )
    before, after = set(tensors_of(base)), set(tensors_of(round_trip))
    lost, invented = sorted(before - after), sorted(after - before)
    detail = f"{len(before)} HF tensors, {placed} tensors in {len(found)} rank files"
    detail += f", {len(after)} HF tensors again"
    for what, names in (("lost", lost), ("invented", invented)):
        if names:
            detail += f"; {len(names)} {what}: {shorten(names, 3)}"
    passed = not lost and not invented and len(found) == rank_files and placed > 0
    return Check("every tensor accounted for", passed, detail)


def check_round_trip(base: Path, round_trip: Path) -> Check:
    """Compare base weights with their way through the rank files, bit by bit."""
    changed, same = _changed(base, round_trip)
    size = sum(tensor.nbytes for tensor in tensors_of(base).values())
    detail = f"{same} tensors, {size / 1e6:.0f} MB, {len(changed)} differ (tolerance: none)"
    return Check("base round trip is bit-equal", not changed and same > 0, detail + _few(changed))


def check_full_export(base: Path, trained: Path, export: Path, *, frozen: tuple[str, ...]) -> Check:
    """After full tuning: the export is what the engine trained, and frozen parts are the base's."""
    wrong, same = _changed(trained, export)
    moved, _ = _changed(base, export)
    thawed = [name for name in moved if name.startswith(frozen)] if frozen else []
    detail = (
        f"{same} tensors equal what trained, {len(wrong)} differ (tolerance: none); "
        f"{len(moved)} moved from the base, {len(thawed)} of them frozen"
    )
    passed = not wrong and same > 0 and bool(moved) and not thawed
    return Check("export equals what trained", passed, detail + _few([*wrong, *thawed]))


def check_untouched(base: Path, export: Path, *, targets: set[str]) -> Check:
    """After LoRA: only weights that have an adapter differ from the base."""
    moved, same = _changed(base, export)
    stray = [name for name in moved if name not in targets]
    still = len(targets) - (len(moved) - len(stray))
    detail = (
        f"{len(moved) - len(stray)} of {len(targets)} adapted weights moved, "
        f"{len(stray)} others did (tolerance: none), {same} tensors are the base's"
    )
    return Check("only adapted weights moved", not stray and not still, detail + _few(stray))


def _changed(one: Path, other: Path) -> tuple[list[str], int]:
    import torch

    first, second = tensors_of(one), tensors_of(other)
    differ = sorted(first.keys() ^ second.keys())
    same = 0
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        if a.dtype == b.dtype and torch.equal(_bits(a), _bits(b)):
            same += 1
        else:
            differ.append(name)
    return sorted(differ), same


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """View the bytes, so that a NaN equals itself and 0 differs from -0."""
    import torch

    return tensor.contiguous().view(torch.uint8)


def _few(names: list[str]) -> str:
    return f": {shorten(names, 3)}" if names else ""


def adapted_weights(adapter: Path) -> set[str]:
    """Name the base weights that a peft folder adapts, under published names."""
    return {hub_name(name) for name in _adapted(adapter)}


def _adapted(adapter: Path) -> Iterator[str]:
    from safetensors import safe_open

    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # not a mapping
            if name.endswith(".lora_B.weight"):
                bare = name.removeprefix("base_model.model.")
                yield bare.removesuffix(".lora_B.weight") + ".weight"
