"""Weights: one table per family, one plan for every direction, no torch.

Names are imported when they are first asked for, so that `inspect` needs no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskpack.weights.account import Account
    from taskpack.weights.adapter_convert import lora_to_peft, mm_to_peft, peft_to_mm
    from taskpack.weights.convert import hf_to_mm, mm_to_hf, resplit
    from taskpack.weights.hf_config import HfConfig, read_hf_config
    from taskpack.weights.hf_export import export
    from taskpack.weights.layout import Layout
    from taskpack.weights.merge import MergeReport, lora_merge
    from taskpack.weights.merge_proof import verify_merge
    from taskpack.weights.run import Options
    from taskpack.weights.verify import verify_account, verify_equal

__all__ = [
    "Account",
    "HfConfig",
    "Layout",
    "MergeReport",
    "Options",
    "export",
    "hf_to_mm",
    "lora_merge",
    "lora_to_peft",
    "mm_to_hf",
    "mm_to_peft",
    "peft_to_mm",
    "read_hf_config",
    "resplit",
    "verify_account",
    "verify_equal",
    "verify_merge",
]

_MODULES = {
    "Account": "account",
    "HfConfig": "hf_config",
    "Layout": "layout",
    "MergeReport": "merge",
    "Options": "run",
    "export": "hf_export",
    "hf_to_mm": "convert",
    "lora_merge": "merge",
    "lora_to_peft": "adapter_convert",
    "mm_to_hf": "convert",
    "mm_to_peft": "adapter_convert",
    "peft_to_mm": "adapter_convert",
    "read_hf_config": "hf_config",
    "resplit": "convert",
    "verify_account": "verify",
    "verify_equal": "verify",
    "verify_merge": "merge_proof",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
