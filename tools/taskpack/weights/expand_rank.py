"""Give modules that are fused in MindSpeed-MM one common lora_A, exactly, at a larger rank.

With A = [A_q; A_k; A_v] and B_q = [B_q, 0, 0], B_k = [0, B_k, 0], B_v = [0, 0, B_v] every product
`B @ A` is what it was. The rank of all modules becomes the largest that any needs, since
MindSpeed-MM trains one; the rest is filled with zeros, and alpha grows with the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taskpack.errors import CheckpointError
from taskpack.weights.adapter import (
    ADAPTER_FILE,
    PEFT_PREFIX,
    Adapted,
    adapted_entries,
    peft_adapter,
    refuse_several_ranks,
)
from taskpack.weights.casts import Raw
from taskpack.weights.copy_engine import Files, read_whole
from taskpack.weights.hf_config import HfConfig
from taskpack.weights.lora_scale import agreed_alpha
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.peft_config import (
    ADAPTER_CONFIG,
    PeftConfig,
    peft_config_text,
    read_peft_config,
)
from taskpack.weights.plan import one_dtype
from taskpack.weights.rows import entries
from taskpack.weights.safetensors_file import lay_out_safetensors
from taskpack.weights.tensors import TensorInfo


def expand_rank(peft_dir: Path, model: HfConfig, out_dir: Path) -> int:
    """Write an equal adapter in which fused modules share lora_A.

    Args:
        peft_dir: The adapter, of one rank.
        model: The base model.
        out_dir: Existing folder for the adapter, in the table's names.

    Returns:
        The new LoRA rank.

    Raises:
        CheckpointError: The adapter does not fit the model, has several ranks, or no config.
        ProfileError: The config tells another rank than the tensors.
    """
    adapter = peft_adapter(peft_dir, model, canonical=True)
    refuse_several_ranks(adapter)
    config = _config(peft_dir, adapter.r)
    one_dtype(adapter.side.infos, where=str(peft_dir))
    infos = {
        item.pieces[0].tensor: adapter.side.infos[item.address] for item in adapter.side.stored
    }
    present = {name for item in adapter.adapted for name in item.a.tensors}
    fused = [
        item
        for item in adapted_entries(
            entries(model.family, model.dims, canonical=False, tied=model.tied), adapter.r
        )
        if any(name in present for name in item.a.spelled[next(iter(item.a.tensors))])
    ]
    r = adapter.r * max(len(item.base.tensors) for item in fused)
    with (out_dir / ADAPTER_FILE).open("wb") as file:
        dtype = next(iter(infos.values())).dtype
        shapes = {name: shape for item in fused for name, shape in _shapes(item, r).items()}
        specs = [TensorSpec("", PEFT_PREFIX + name, dtype, shape) for name, shape in shapes.items()]
        out = lay_out_safetensors(ADAPTER_FILE, specs)
        file.write(out.head[0][1])
        for item in fused:
            for values in _expanded(item, infos, adapter.r, r):
                file.write(values.tobytes())
    modules = {name.partition(".lora_")[0] for name in shapes}
    alpha = config.scale("", adapter.r) * r
    (out_dir / ADAPTER_CONFIG).write_text(peft_config_text(modules, r=r, alpha=alpha))
    return r


def _config(peft_dir: Path, r: int) -> PeftConfig:
    config = read_peft_config(peft_dir)
    if config is None:
        raise CheckpointError(
            f"the adapter has no {ADAPTER_CONFIG}",
            where=str(peft_dir),
            why="alpha grows with the rank, so it has to be known where the rank is expanded",
            fix="put the file that peft's save_pretrained wrote beside the tensors",
        )
    agreed_alpha({ADAPTER_CONFIG: config.said}, r, where=str(peft_dir))
    return config


def _shapes(item: Adapted, r: int) -> dict[str, tuple[int, ...]]:
    """Give the shapes of the factors, all lora_A of a fused module before its lora_B."""
    columns = item.base.shape[1]
    names = item.a.spelled[next(iter(item.a.tensors))]
    return {
        **{name: (r, columns) for name in names},
        **{name: (shape[0], r) for name, shape in item.b.tensors.items()},
    }


def _expanded(item: Adapted, infos: dict[str, TensorInfo], old: int, r: int) -> Sequence[Raw]:
    names = item.a.spelled[next(iter(item.a.tensors))]
    with Files() as files:
        parts, factors = (
            [
                read_whole(files.fd(infos[name].path), infos[name]) if name in infos else None
                for name in wanted
            ]
            for wanted in (names, item.b.tensors)
        )
    dtype = next(part for part in parts if part is not None).dtype
    a = np.zeros((r, item.base.shape[1]), dtype)
    result = [a] * len(names)
    for index, (part, factor, shape) in enumerate(
        zip(parts, factors, item.b.tensors.values(), strict=True)
    ):
        place = slice(index * old, (index + 1) * old)
        b = np.zeros((shape[0], r), dtype)
        if part is not None and factor is not None:
            a[place] = part
            b[:, place] = factor
        result.append(b)
    return result
