"""Merge an adapter into base weights while they are copied.

Only target modules see any math; every other tensor is a run of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taskpack.errors import CheckpointError, ProfileError, nearest, raise_collected, shorten
from taskpack.parallel import PipelineSplit
from taskpack.weights.account import Account
from taskpack.weights.adapter import Adapted, AdapterSource, mm_adapter
from taskpack.weights.delta import Delta, Said, lora_scale
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import LAYOUT_FILE, Layout
from taskpack.weights.mm_checkpoint import (
    layout_record,
    mm_output,
    mm_source,
    model_of,
    refuse_adapter,
)
from taskpack.weights.mm_folder import MmFolder, check_ranks, infer_layout, read_mm_folder
from taskpack.weights.out_dir import check_target
from taskpack.weights.run import DEFAULT_OPTIONS, Options, dtype_to_write, run


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did.

    Attributes:
        account: Totals of the copy.
        merged: Modules whose weights were changed, with the number of layers.
        left_out: Modules that have an adapter but are not among the targets.
        absent: Targets for which the adapter has nothing.
        scale: alpha / r.
    """

    account: Account
    merged: Mapping[str, int]
    left_out: Sequence[str]
    absent: Sequence[str]
    scale: float

    def to_json(self) -> dict[str, Any]:
        """Give the report as a plain record."""
        return {
            **self.account.to_json(),
            "merged": dict(self.merged),
            "left_out": list(self.left_out),
            "absent": list(self.absent),
            "scale": self.scale,
        }

    def __str__(self) -> str:
        merged = "\n".join(f"  {name}: {layers} layers" for name, layers in self.merged.items())
        lines = [f"{self.account}", f"scale {self.scale:g}; merged:", merged]
        if self.left_out:
            lines.append("left out, not among the targets: " + ", ".join(self.left_out))
        if self.absent:
            lines.append("absent from the adapter: " + ", ".join(self.absent))
        return "\n".join(lines)


def lora_merge(
    base_dir: Path,
    adapter_dir: Path,
    out_dir: Path,
    *,
    model: HfConfig | None = None,
    layout: Layout | None = None,
    iteration: str = "latest",
    targets: Sequence[str] = (),
    lora: Mapping[str, Said] = MappingProxyType({}),
    options: Options = DEFAULT_OPTIONS,
) -> MergeReport:
    """Merge a Megatron adapter into Megatron base weights: `W + alpha / r * B @ A`.

    Args:
        base_dir: Base checkpoint; its layout is that of the result.
        adapter_dir: Adapter checkpoint of any layout.
        out_dir: Folder to make.
        model: The model; by default what the base's layout file says.
        layout: Layout to insist on for the base.
        iteration: Which iteration of the adapter: `latest`, `release` or a number.
        targets: Modules to merge, such as `linear_qkv`; by default all that the adapter has.
        lora: Alpha and r from other sources, by the name of the source.
        options: See `Options`.

    Raises:
        CheckpointError: Base or adapter are incomplete, do not fit, or nothing would be merged.
        ProfileError: Alpha is unknown or contradicted, or a target is no module of the family.
    """
    check_target(
        out_dir, [base_dir, adapter_dir], overwrite=options.overwrite, resume=options.resume
    )
    base = read_mm_folder(base_dir)
    refuse_adapter(base)
    model = model or model_of(base)
    source, base_layout = mm_source(base, model, layout)
    folder = read_mm_folder(adapter_dir, iteration=iteration)
    adapter = mm_adapter(folder, model, adapter_layout(folder, model, base_layout))
    chosen, left_out, absent = _choose(adapter, targets, where=str(adapter_dir))
    scale = lora_scale(folder, adapter.r, lora)
    delta = Delta(adapter, chosen, scale)
    digest = delta.check()
    _refuse_second_merge(base, digest)
    dtype = dtype_to_write(source, options)
    merged: dict[str, str | float] = {"adapter": digest, "scale": scale}
    record = layout_record(
        model, base_layout, source, dtype=dtype, release=options.release, merged=merged
    )
    output = mm_output(out_dir, base_layout, source.stored, dtype=dtype, record=record)
    try:
        account = run(
            source, source.stored, output, dtype=dtype, options=options, change=delta.change
        )
    finally:
        delta.close()
    return MergeReport(account, _count_modules(chosen), left_out, absent, scale)


def adapter_layout(folder: MmFolder, model: HfConfig, base: Layout) -> Layout:
    """Tell the layout of an adapter, which may have tensors in one tower only.

    A tower without adapter tensors takes the base's split where the stages agree, and otherwise
    any: nothing of it is read.
    """
    if folder.record is not None:
        check_ranks(folder, folder.record.layout)
        return folder.record.layout
    shown = infer_layout(folder)
    empty = PipelineSplit(((model.dims["vision_layers"], *[0] * (shown.pp_size - 1)),))
    vision = shown.vision if shown.vision.total else empty
    text = shown.text
    if not text.total:
        text = base.text if base.pp_size == shown.pp_size else text
    if not shown.vision.total and base.pp_size == shown.pp_size:
        vision = base.vision
    layout = Layout(shown.tp_size, text, vision, canonical=shown.canonical)
    raise_collected(layout.faults(model.dims, where=str(folder.root), kind=CheckpointError))
    return layout


def module_name(item: Adapted) -> str:
    """Name a module as LoRA targets do, such as `linear_qkv`."""
    return item.base.mm.removesuffix(".weight").rpartition(".")[2]


def _choose(
    adapter: AdapterSource, targets: Sequence[str], *, where: str
) -> tuple[list[Adapted], list[str], list[str]]:
    present = sorted({module_name(item) for item in adapter.adapted})
    wanted = list(targets) or present
    known = sorted({module_name(item) for item in adapter.possible})
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ProfileError(
            f"{shorten(unknown)} is no module of this family",
            where="targets",
            why="a misspelt target would be merged nowhere, and the result would equal the base",
            fix=nearest(unknown[0], known),
        )
    chosen = [item for item in adapter.adapted if module_name(item) in wanted]
    if not chosen:
        raise CheckpointError(
            f"none of the targets {shorten(wanted)} has an adapter",
            where=where,
            why="the result would equal the base",
            fix=f"the adapter has: {shorten(present)}",
        )
    left_out = [name for name in present if name not in wanted]
    return chosen, left_out, [name for name in wanted if name not in present]


def _count_modules(chosen: Sequence[Adapted]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in chosen:
        name = item.base.mm.removesuffix(".weight").replace(".layers.{layer}", "")
        counts[name] = counts.get(name, 0) + 1
    return counts


def _refuse_second_merge(base: MmFolder, digest: str) -> None:
    record = base.record
    if record is not None and record.merged.get("adapter") == digest:
        raise CheckpointError(
            "this adapter is already merged into the base",
            where=str(base.root / LAYOUT_FILE),
            why="merging it twice would apply it with twice the scale",
            fix="name the base weights that training started from",
        )
