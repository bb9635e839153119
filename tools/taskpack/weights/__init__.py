"""Weights: one table per family, one plan for every direction, no torch."""

from taskpack.weights.account import Account
from taskpack.weights.convert import hf_to_mm, mm_to_hf
from taskpack.weights.layout import Layout
from taskpack.weights.run import Options

__all__ = ["Account", "Layout", "Options", "hf_to_mm", "mm_to_hf"]
