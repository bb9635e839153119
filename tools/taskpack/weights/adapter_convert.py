"""Convert adapters between peft folders and Megatron rank files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.account import ACCOUNT_FILE, Account
from taskpack.weights.adapter import ADAPTER_FILE, PEFT_PREFIX, mm_adapter, peft_adapter
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.layout import Layout
from taskpack.weights.mm_checkpoint import layout_record, mm_output
from taskpack.weights.mm_folder import MmFolder
from taskpack.weights.out_dir import check_target
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.rows import Naming, pattern_of
from taskpack.weights.run import DEFAULT_OPTIONS, Options, Output, dtype_to_write, run
from taskpack.weights.safetensors_file import lay_out_safetensors
from taskpack.weights.sides import Stored, hf_side, mm_side

ADAPTER_CONFIG = "adapter_config.json"


def peft_to_mm(
    peft_dir: Path,
    model: HfConfig,
    mm_dir: Path,
    *,
    layout: Layout,
    iteration: str = "release",
    options: Options = DEFAULT_OPTIONS,
) -> Account:
    """Convert a peft adapter to Megatron rank files.

    Args:
        peft_dir: Folder with adapter_model.safetensors, and adapter_config.json for alpha.
        model: The base model.
        mm_dir: Folder to make.
        layout: Layout; a fused one needs equal lora_A for q, k, v and for gate, up.
        iteration: `release`, or a number to write it under.
        options: See `Options`.

    Raises:
        CheckpointError: The adapter does not fit the model, or cannot be fused.
    """
    check_target(mm_dir, [peft_dir], overwrite=options.overwrite, resume=options.resume)
    adapter = peft_adapter(peft_dir, model, canonical=layout.canonical)
    settings = read_peft_config(peft_dir)
    stored = mm_side([e for item in adapter.adapted for e in (item.a, item.b)], layout)
    dtype = dtype_to_write(adapter.side, options)
    lora = {"r": adapter.r, **({"alpha": settings["lora_alpha"]} if settings else {})}
    record = layout_record(
        model, layout, adapter.side, dtype=dtype, release=options.release, lora=lora
    )
    output = mm_output(mm_dir, layout, stored, dtype=dtype, record=record, iteration=iteration)
    return run(adapter.side, stored, output, dtype=dtype, options=options)


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
        texts[ADAPTER_CONFIG] = _peft_config(stored, r=adapter.r, alpha=alpha)
    output = Output(
        target=peft_dir,
        outs={ADAPTER_FILE: lay_out_safetensors(ADAPTER_FILE, specs)},
        texts=texts,
        account_of=lambda _path: ACCOUNT_FILE,
    )
    return run(adapter.side, stored, output, dtype=dtype, options=options)


def _peft_config(stored: Sequence[Stored], *, r: int, alpha: float) -> str:
    """Write adapter_config.json; the targets are a pattern of whole module names."""
    modules = {
        s.name.partition(".lora_")[0].removeprefix(PEFT_PREFIX)
        for s in stored
        if ".lora_" in s.name
    }
    patterns = sorted({pattern_of(module + ".").rstrip(".") for module in modules})
    targets = "|".join(re.escape(pattern).replace(r"\*", r"\d+") for pattern in patterns)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": r,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": f"(.*\\.)?({targets})",
    }
    return json.dumps(config, indent=2) + "\n"


def read_peft_config(peft_dir: Path) -> dict[str, float]:
    """Read `r` and `lora_alpha` of a peft folder; empty where there is no config.

    Raises:
        CheckpointError: The config is damaged, or describes more than plain LoRA.
    """
    path = peft_dir / ADAPTER_CONFIG
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        result = {"r": config["r"], "lora_alpha": config["lora_alpha"]}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{ADAPTER_CONFIG} is damaged ({type(error).__name__})",
            where=str(path),
            why="rank and alpha of the adapter are read from it",
            fix="name the folder that peft's save_pretrained wrote",
        ) from None
    special = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save")
    used = [name for name in special if config.get(name)]
    if used:
        raise CheckpointError(
            f"the adapter uses {shorten(used)}",
            where=str(path),
            why="it would be wrong to treat it as plain LoRA",
            fix="merge it with peft, then convert the merged model",
        )
    return result
