"""`adapter_config.json` of a peft folder: what it says, and what of it can be carried over.

Rules as in peft 0.21 (`peft/tuners/lora/config.py`, `peft/utils/other.py:get_pattern_key`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskpack.errors import CheckpointError, TaskpackError, raise_collected, shorten
from taskpack.weights.lora_scale import Said

ADAPTER_CONFIG = "adapter_config.json"

_UNSUPPORTED = {
    "use_dora": "DoRA also scales each weight's rows",
    "lora_bias": "the bias of lora_B is not merged into weights",
    "fan_in_fan_out": "the weights would be transposed",
    "layer_replication": "the base would have other layers",
    "target_parameters": "adapters on bare parameters have other names and shapes",
    "trainable_token_indices": "single rows of the embedding were trained",
    "use_bdlora": "the factors are block diagonal",
    "use_qalora": "the inputs are pooled before lora_A",
    "arrow_config": "the adapters are routed",
    "alora_invocation_tokens": "the adapter is on for some tokens only",
    "kasa_config": "the base was changed when training began",
    "monteclora_config": "the factors are drawn at random",
}
"""Settings under which `W + scale * B @ A` is not the model that was trained."""

_PLAIN = {
    *("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias"),
    *("modules_to_save", "target_modules", "exclude_modules", "init_lora_weights"),
    *("layers_to_transform", "layers_pattern", "target_modules_to_tie", "ensure_weight_tying"),
    *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
    *("inference_mode", "lora_dropout", "megatron_config", "megatron_core", "runtime_config"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config"),
    *("qalora_group_size", "enable_lora", "merge_weights"),
}
"""Settings that are read here, or that do not change the math."""

_CHANGED_BASE = ("pissa", "corda", "olora", "loftq", "lora_ga")
"""Initialisations that take something out of the base weights, or quantize them."""


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What an adapter_config.json says about the math.

    Attributes:
        r: LoRA rank.
        alpha: LoRA alpha.
        rslora: Whether the scale is alpha / sqrt(r) instead of alpha / r.
        ranks: `rank_pattern`: rank by a pattern of module names.
        alphas: `alpha_pattern`: alpha by a pattern of module names.
        saved: `modules_to_save`: modules that were trained whole.
    """

    r: int
    alpha: float
    rslora: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    saved: tuple[str, ...] = ()

    @property
    def said(self) -> Said:
        """Alpha and r, as one of the sources that have to agree."""
        return self.alpha, self.r

    def alpha_of(self, module: str) -> float:
        """Give the alpha of a module by its name in the base model."""
        return next(
            (a for pattern, a in self.alphas.items() if _names(pattern, module)), self.alpha
        )

    def scale(self, module: str, r: int) -> float:
        """Give what `B @ A` of a module of rank r is multiplied with."""
        return self.alpha_of(module) / (math.sqrt(r) if self.rslora else r)


def _names(pattern: str, module: str) -> bool:
    return re.match(rf"(.*\.)?({pattern})$", module) is not None


def read_peft_config(peft_dir: Path) -> PeftConfig | None:
    """Read adapter_config.json; None where there is none.

    Raises:
        CheckpointError: It is damaged, or describes something else than LoRA on linear modules.
    """
    path = peft_dir / ADAPTER_CONFIG
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        raise_collected(_faults(config, path))
        return PeftConfig(
            r=int(config["r"]),
            alpha=float(config["lora_alpha"]),
            rslora=bool(config.get("use_rslora")),
            ranks=_patterns(config, "rank_pattern"),
            alphas=_patterns(config, "alpha_pattern"),
            saved=tuple(map(str, config.get("modules_to_save") or ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, re.error) as error:
        raise CheckpointError(
            f"{ADAPTER_CONFIG} is damaged ({type(error).__name__})",
            where=str(path),
            why="rank and alpha of the adapter are read from it",
            fix="name the folder that peft's save_pretrained wrote",
        ) from None


def _patterns(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = dict(config.get(key) or {})
    for pattern, value in found.items():
        re.compile(pattern)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise ValueError(f"{key} of {pattern} is {value!r}")
    return found


def _faults(config: Mapping[str, Any], path: Path) -> list[TaskpackError]:
    used = {key: why for key, why in _UNSUPPORTED.items() if config.get(key)}
    for key in sorted(config.keys() - _PLAIN - _UNSUPPORTED.keys()):
        if config[key]:
            used[key] = "it is not known what this does to the weights"
    if config.get("peft_type", "LORA") != "LORA":
        used["peft_type"] = f"it is {config['peft_type']}, not LORA"
    if config.get("bias", "none") != "none":
        used["bias"] = "biases were trained"
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        used["init_lora_weights"] = f"{start} changed the base weights when training began"
    return [
        CheckpointError(
            f"the adapter uses {key}",
            where=str(path),
            why=f"{why}; treating it as plain LoRA would give wrong weights",
            fix="merge it with peft, then convert the merged model",
        )
        for key, why in used.items()
    ]


def peft_config_text(modules: Collection[str], *, r: int, alpha: float) -> str:
    """Write adapter_config.json; its targets are a pattern of whole module names.

    Args:
        modules: Adapted modules as the base model spells them.
        r: LoRA rank.
        alpha: LoRA alpha.
    """
    # a number at the end is part of a name, such as the projector's mlp.0, not that of a layer
    patterns = {re.sub(r"(?<=\.)\d+(?=\.)", "*", module) for module in modules}
    targets = "|".join(re.escape(name).replace(r"\*", r"\d+") for name in sorted(patterns))
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


def refuse_beyond_megatron(config: PeftConfig | None, peft_dir: Path) -> None:
    """Refuse what a Megatron adapter has no place for.

    Raises:
        CheckpointError: The adapter has several ranks or alphas, or whole modules.
    """
    if config is None:
        return
    beyond = {
        "rank_pattern": config.ranks,
        "alpha_pattern": config.alphas,
        "modules_to_save": config.saved,
    }
    used = [key for key, value in beyond.items() if value]
    if used:
        raise CheckpointError(
            f"the adapter uses {shorten(used)}",
            where=str(peft_dir / ADAPTER_CONFIG),
            why="MindSpeed-MM trains one rank and one alpha, and nothing beside the adapter",
            fix="merge it: taskpack export --base DIR --adapter DIR --hf-ref DIR --hf DIR",
        )
