"""Data files in the form MindSpeed-MM reads."""

from taskpack.data.convert import Conversion, ConvertOptions, OnBad, convert, convert_llava
from taskpack.data.findings import Finding
from taskpack.data.formats import Format
from taskpack.data.rows import Media

__all__ = [
    "Conversion",
    "ConvertOptions",
    "Finding",
    "Format",
    "Media",
    "OnBad",
    "convert",
    "convert_llava",
]
