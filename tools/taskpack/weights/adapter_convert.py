"""Convert adapters between peft folders and Megatron rank files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import CheckpointError, raise_collected
from taskpack.weights.account import ACCOUNT_FILE, Account
from taskpack.weights.adapter import (
    ADAPTER_FILE,
    AdapterSource,
    mm_adapter,
    module_in_peft,
    peft_adapter,
    peft_naming,
    refuse_several_ranks,
)
from taskpack.weights.adapter_open import adapter_layout
from taskpack.weights.expand_rank import expand_rank
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import Said, agreed_alpha, told_by
from taskpack.weights.mm_checkpoint import layout_record, mm_output, model_of, target_faults
from taskpack.weights.mm_folder import MmFolder, read_mm_folder
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.peft_config import (
    ADAPTER_CONFIG,
    peft_config_text,
    read_peft_config,
    refuse_beyond_megatron,
)
from taskpack.weights.plan import make_plan
from taskpack.weights.replicas import differing
from taskpack.weights.rows import Naming
from taskpack.weights.run import DEFAULT_OPTIONS, Options, Output, dtype_to_write, run
from taskpack.weights.safetensors_file import lay_out_safetensors
from taskpack.weights.sides import hf_side, mm_side
from taskpack.weights.target import check_target


def peft_to_mm(
    peft_dir: Path,
    model: HfConfig,
    mm_dir: Path,
    *,
    layout: Layout,
    iteration: str = "release",
    options: Options = DEFAULT_OPTIONS,
    where: str = "--tp",
) -> Account:
    """Convert a peft adapter to Megatron rank files.

    Args:
        peft_dir: Folder with adapter_model.safetensors, and adapter_config.json for alpha.
        model: The base model.
        mm_dir: Folder to make.
        layout: Layout; a fused one needs equal lora_A for q, k, v and for gate, up.
        iteration: `release`, or a number to write it under.
        options: See `Options`.
        where: What gave the layout, for messages.

    Raises:
        ProfileError: The model cannot have this layout.
        CheckpointError: The adapter does not fit the model, or cannot be fused.
    """
    check_target(mm_dir, [peft_dir], overwrite=options.overwrite, resume=options.resume)
    raise_collected(target_faults(model, layout, replace(options, pad_vocab=True), where))
    settings = read_peft_config(peft_dir)
    refuse_beyond_megatron(settings, peft_dir)
    adapter = peft_adapter(peft_dir, model, canonical=layout.canonical)
    refuse_several_ranks(adapter)
    _refuse_unequal_a(adapter, where=str(peft_dir))
    stored = mm_side([e for item in adapter.adapted for e in (item.a, item.b)], layout)
    dtype = dtype_to_write(adapter.side, options)
    lora: dict[str, float] = {"r": adapter.r}
    if settings is not None:
        agreed_alpha({ADAPTER_CONFIG: settings.said}, adapter.r, where=str(peft_dir))
        # MindSpeed-MM's scale is alpha / r, whatever peft's was
        lora["alpha"] = settings.scale("", adapter.r) * adapter.r
    record = layout_record(
        model, layout, adapter.side, dtype=dtype, release=options.release, lora=lora
    )
    output = mm_output(mm_dir, layout, stored, dtype=dtype, record=record, iteration=iteration)
    return run(adapter.side, stored, output, dtype=dtype, options=options)


def expanded_peft_to_mm(
    peft_dir: Path,
    model: HfConfig,
    mm_dir: Path,
    *,
    layout: Layout,
    options: Options = DEFAULT_OPTIONS,
    where: str = "--tp",
) -> Account:
    """Convert a peft adapter as `peft_to_mm` does, at a rank at which modules can be fused.

    Raises:
        TaskpackError: As `peft_to_mm`.
    """
    check_target(mm_dir, [peft_dir], overwrite=options.overwrite, resume=options.resume)
    refuse_beyond_megatron(read_peft_config(peft_dir), peft_dir)
    scratch = mm_dir.absolute().parent / f".{mm_dir.name}.expanded"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        expand_rank(peft_dir, model, scratch)
        # a resumed run knows its inputs by name and time; these are made anew from the adapter
        made = (peft_dir / ADAPTER_FILE).stat()
        os.utime(scratch / ADAPTER_FILE, ns=(made.st_atime_ns, made.st_mtime_ns))
        return peft_to_mm(scratch, model, mm_dir, layout=layout, options=options, where=where)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def lora_to_peft(
    adapter_dir: Path,
    peft_dir: Path,
    *,
    model: HfConfig | None = None,
    iteration: str = "latest",
    lora: Mapping[str, Said] = MappingProxyType({}),
    old_names: bool = False,
    options: Options = DEFAULT_OPTIONS,
) -> Account:
    """Convert an adapter checkpoint to a folder that `PeftModel.from_pretrained` loads.

    Args:
        adapter_dir: Adapter checkpoint of any layout, fused or canonical.
        peft_dir: Folder to make.
        model: The base model; by default what the layout file says.
        iteration: `latest`, `release` or a number.
        lora: Alpha and r from other sources, by the name of the source.
        old_names: Write the module names of transformers before 4.52. peft matches modules, and
            these have the new names also where a checkpoint's tensors have the old ones.
        options: See `Options`.

    Raises:
        CheckpointError: The adapter is incomplete, or does not fit the model.
        ProfileError: Alpha is unknown or contradicted.
    """
    check_target(peft_dir, [adapter_dir], overwrite=options.overwrite, resume=options.resume)
    folder = read_mm_folder(adapter_dir, iteration=iteration)
    model = model or model_of(folder)
    adapter = mm_adapter(folder, model, adapter_layout(folder, model, None))
    alpha = agreed_alpha({**told_by(folder), **lora}, adapter.r, where=str(adapter_dir))
    naming = peft_naming(model.family.namings[-1 if old_names else 0])
    return _write_peft(adapter, peft_dir, alpha=alpha, naming=naming, options=options)


def _refuse_unequal_a(adapter: AdapterSource, *, where: str) -> None:
    """Refuse to fuse modules whose lora_A differ: a fused module has one.

    Raises:
        CheckpointError: They differ.
    """
    replicas = make_plan([], adapter.side.stored, adapter.side.infos).replicas
    different = sorted({item.tensor for item in differing(replicas, threads=1)})
    if different:
        raise CheckpointError(
            f"{len(different)} modules cannot be fused, first {different[0]}: their lora_A differ",
            where=where,
            why="q, k and v, and gate and up, share one lora_A in MindSpeed-MM's fused structure",
            fix="use --canonical, or --expand-rank for an exact fused adapter of a larger rank",
        )


def mm_to_peft(
    folder: MmFolder,
    model: HfConfig,
    peft_dir: Path,
    *,
    layout: Layout,
    alpha: float | None,
    naming: Naming,
    options: Options = DEFAULT_OPTIONS,
) -> Account:
    """Convert Megatron adapter files to a peft folder.

    Args:
        folder: The adapter.
        model: The base model.
        peft_dir: Folder to make: adapter_model.safetensors and, with alpha, adapter_config.json.
        layout: Layout of the adapter.
        alpha: LoRA alpha; None leaves the config out.
        naming: Spelling of the names, peft's prefix included.
        options: See `Options`.

    Raises:
        CheckpointError: There is no adapter, or it does not fit the model and layout.
    """
    check_target(peft_dir, [folder.root], overwrite=options.overwrite, resume=options.resume)
    adapter = mm_adapter(folder, model, layout)
    return _write_peft(adapter, peft_dir, alpha=alpha, naming=naming, options=options)


def _write_peft(
    adapter: AdapterSource,
    peft_dir: Path,
    *,
    alpha: float | None,
    naming: Naming,
    options: Options,
) -> Account:
    stored = hf_side(
        [e for item in adapter.adapted for e in (item.a, item.b)],
        {},
        naming,
        single=ADAPTER_FILE,
        every_spelling=True,
    )
    dtype = dtype_to_write(adapter.side, options)
    specs = [TensorSpec("", s.name, dtype, s.shape) for s in sorted(stored, key=lambda s: s.name)]
    texts = {}
    if alpha is not None:
        modules = {module_in_peft(s.name) for s in stored}
        texts[ADAPTER_CONFIG] = peft_config_text(modules, r=adapter.r, alpha=alpha)
    output = Output(
        target=peft_dir,
        outs={ADAPTER_FILE: lay_out_safetensors(ADAPTER_FILE, specs)},
        texts=texts,
        account_of=lambda _path: ACCOUNT_FILE,
    )
    return run(adapter.side, stored, output, dtype=dtype, options=options)
