"""An adapter of either kind, ready to be merged: which modules, and with what scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import CheckpointError, ProfileError, nearest, raise_collected, shorten
from taskpack.parallel import PipelineSplit
from taskpack.weights.adapter import (
    Adapted,
    AdapterSource,
    factors_of,
    mm_adapter,
    module_in_peft,
    peft_adapter,
)
from taskpack.weights.delta import Delta
from taskpack.weights.folders import is_peft
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import Said, agreed_alpha, told_by
from taskpack.weights.merge_record import Merged
from taskpack.weights.mm_folder import MmFolder, check_ranks, infer_layout, read_mm_folder
from taskpack.weights.peft_config import ADAPTER_CONFIG, PeftConfig, read_peft_config
from taskpack.weights.rows import Module


@dataclass(frozen=True, slots=True)
class OpenAdapter:
    """An adapter and what of it shall be merged.

    Attributes:
        source: Its tensors.
        chosen: The modules to merge.
        left_out: Modules that have an adapter but are not among the targets.
        absent: Targets for which the adapter has nothing.
        scales: What `B @ A` is multiplied with, by the name of the logical weight.
    """

    source: AdapterSource
    chosen: Sequence[Adapted]
    left_out: Sequence[str]
    absent: Sequence[str]
    scales: Mapping[str, float]

    def delta(self) -> Delta:
        """Give the math of the merge."""
        return Delta(self.source, self.chosen, self.scales)

    def note(self, digest: str) -> Merged:
        """Word what the merged weights say of this adapter."""
        return {"adapter": digest, "scale": max(self.scales.values(), default=1.0)}

    def merged_modules(self) -> dict[str, int]:
        """Count the layers of each module that is merged."""
        counts: dict[str, int] = {}
        for item in self.chosen:
            name = item.base.mm.removesuffix(".weight").replace(".layers.{layer}", "")
            counts[name] = counts.get(name, 0) + 1
        return counts


def open_adapter(
    adapter_dir: Path,
    model: HfConfig,
    *,
    base_layout: Layout | None = None,
    iteration: str = "latest",
    targets: Sequence[str] = (),
    lora: Mapping[str, Said] = MappingProxyType({}),
) -> OpenAdapter:
    """Open an adapter: a peft folder, or a Megatron checkpoint of any layout.

    Args:
        adapter_dir: Its folder.
        model: The base model.
        base_layout: Layout of the base, for towers that a Megatron adapter does not show.
        iteration: Which iteration of a checkpoint: `latest`, `release` or a number.
        targets: Modules to merge, such as `linear_qkv`; by default all that the adapter has.
        lora: Alpha and r from other sources, by the name of the source.

    Raises:
        CheckpointError: The adapter is incomplete, of another model, or nothing would be merged.
        ProfileError: Alpha is unknown or contradicted, or a target is no module of the family.
    """
    if is_peft(adapter_dir):
        source = peft_adapter(adapter_dir, model, canonical=True)
        config = read_peft_config(adapter_dir)
        chosen, left_out, absent = _choose(source, targets, where=str(adapter_dir))
        scales = _peft_scales(source, config, lora, where=str(adapter_dir))
        return OpenAdapter(source, chosen, left_out, absent, scales)
    folder = read_mm_folder(adapter_dir, iteration=iteration)
    source = mm_adapter(folder, model, adapter_layout(folder, model, base_layout))
    chosen, left_out, absent = _choose(source, targets, where=str(adapter_dir))
    sources = {**told_by(folder), **lora}
    scale = agreed_alpha(sources, source.r, where=str(adapter_dir)) / source.r
    scales = {name: scale for item in source.adapted for name in item.base.tensors}
    return OpenAdapter(source, chosen, left_out, absent, scales)


def _peft_scales(
    source: AdapterSource, config: PeftConfig | None, lora: Mapping[str, Said], *, where: str
) -> dict[str, float]:
    own: dict[str, Said] = {}
    if config is not None:
        own[ADAPTER_CONFIG] = config.said
    r = config.r if config is not None and config.ranks else source.r
    alpha = agreed_alpha({**own, **lora}, r, where=where)
    config = config or PeftConfig(r, alpha)
    # patterns are about the names of modules, as the file spells them
    modules = {item.pieces[0].tensor: module_in_peft(item.name) for item in source.side.stored}
    return {
        name: config.scale(modules[factors.b], item.a.shape[0])
        for item in source.adapted
        for name, factors in factors_of(item.base).items()
    }


def adapter_layout(folder: MmFolder, model: HfConfig, base: Layout | None) -> Layout:
    """Tell the layout of an adapter, which may have tensors in one tower only.

    A tower without adapter tensors takes the base's split where the stages agree, and otherwise
    any: nothing of it is read.
    """
    if folder.record is not None:
        check_ranks(folder, folder.record.layout)
        return folder.record.layout
    shown = infer_layout(folder)
    same_stages = base is not None and base.pp_size == shown.pp_size
    splits: dict[Module, PipelineSplit] = {}
    modules: tuple[Module, ...] = ("text", "vision")
    for module in modules:
        split = shown.text if module == "text" else shown.vision
        if not split.total:
            layers = model.dims[model.family.layers[module]]
            split = PipelineSplit(((layers, *[0] * (shown.pp_size - 1)),))
            if base is not None and same_stages:
                split = base.text if module == "text" else base.vision
        splits[module] = split
    layout = Layout(shown.tp_size, splits["text"], splits["vision"], canonical=shown.canonical)
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
