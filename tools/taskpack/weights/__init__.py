"""Weights: one table per family, one plan for every direction, no torch."""

from taskpack.weights.account import Account
from taskpack.weights.adapter_convert import lora_to_peft, mm_to_peft, peft_to_mm
from taskpack.weights.convert import hf_to_mm, mm_to_hf, resplit
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.hf_export import export
from taskpack.weights.layout import Layout
from taskpack.weights.merge import MergeReport, lora_merge
from taskpack.weights.run import Options
from taskpack.weights.verify import verify_account, verify_equal
from taskpack.weights.verify_merge import verify_merge

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
