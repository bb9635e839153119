"""Merge an adapter into base weights while they are copied.

Only target modules see any math; every other tensor is a run of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.account import Account
from taskpack.weights.adapter_open import OpenAdapter, open_adapter
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import Said
from taskpack.weights.merge_record import merged_into_mm, refuse_second_merge
from taskpack.weights.mm_checkpoint import (
    layout_record,
    mm_output,
    mm_source,
    model_of,
    refuse_adapter,
)
from taskpack.weights.mm_folder import read_mm_folder
from taskpack.weights.run import DEFAULT_OPTIONS, Options, dtype_to_write, run
from taskpack.weights.target import check_target


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did.

    Attributes:
        account: Totals of the copy.
        merged: Modules whose weights were changed, with the number of layers.
        left_out: Modules that have an adapter but are not among the targets.
        absent: Targets for which the adapter has nothing.
        scales: Every scale used; several where modules have a rank or alpha of their own.
        replaced: Weights that the adapter holds whole.
    """

    account: Account
    merged: Mapping[str, int]
    left_out: Sequence[str]
    absent: Sequence[str]
    scales: Sequence[float]
    replaced: Sequence[str] = ()

    @classmethod
    def of(cls, account: Account, adapter: OpenAdapter) -> MergeReport:
        """Describe a merge that was carried out."""
        used = {adapter.scales[name] for item in adapter.chosen for name in item.base.tensors}
        return cls(
            account,
            adapter.merged_modules(),
            adapter.left_out,
            adapter.absent,
            sorted(used),
            sorted(adapter.source.saved),
        )

    def to_json(self) -> dict[str, Any]:
        """Give the report as a plain record."""
        return {
            **self.account.to_json(),
            "merged": dict(self.merged),
            "left_out": list(self.left_out),
            "absent": list(self.absent),
            "scale": self.scales[-1],
            "scales": list(self.scales),
            "replaced": list(self.replaced),
        }

    def __str__(self) -> str:
        merged = "\n".join(f"  {name}: {layers} layers" for name, layers in self.merged.items())
        scales = ", ".join(f"{scale:g}" for scale in self.scales)
        lines = [f"{self.account}", f"scale {scales}; merged:", merged]
        if self.left_out:
            lines.append("left out, not among the targets: " + ", ".join(self.left_out))
        if self.absent:
            lines.append("absent from the adapter: " + ", ".join(self.absent))
        if self.replaced:
            lines.append("replaced by the adapter's own: " + ", ".join(self.replaced))
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
    """Merge an adapter into Megatron base weights: `W + alpha / r * B @ A`.

    Args:
        base_dir: Base checkpoint; its layout is that of the result.
        adapter_dir: Adapter checkpoint of any layout, or a peft folder.
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
    adapter = open_adapter(
        adapter_dir,
        model,
        base_layout=base_layout,
        iteration=iteration,
        targets=targets,
        lora=lora,
    )
    _refuse_saved_modules(adapter, adapter_dir)
    dtype = dtype_to_write(source, options)
    with adapter.delta() as delta:
        refuse_second_merge(merged_into_mm(base), delta.digest, base=base_dir)
        record = layout_record(
            model,
            base_layout,
            source,
            dtype=dtype,
            release=options.release,
            merged=adapter.note(delta.digest),
        )
        output = mm_output(out_dir, base_layout, source.stored, dtype=dtype, record=record)
        account = run(source, source.stored, output, dtype=dtype, options=options, change=delta)
    return MergeReport.of(account, adapter)


def _refuse_saved_modules(adapter: OpenAdapter, adapter_dir: Path) -> None:
    if adapter.source.saved:
        raise CheckpointError(
            f"the adapter has whole modules: {shorten(sorted(adapter.source.saved))}",
            where=str(adapter_dir),
            why="a head or embedding of its own may change which tensors the checkpoint has",
            fix="use taskpack export, and convert the folder it makes",
        )
