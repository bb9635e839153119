"""Data files in the form MindSpeed-MM reads."""

from taskpack.data.convert import Conversion, OnBad, convert_llava
from taskpack.data.llava import Finding

__all__ = ["Conversion", "Finding", "OnBad", "convert_llava"]
