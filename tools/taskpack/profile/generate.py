"""How the model answers and is evaluated after training."""

from __future__ import annotations

from typing import Literal

from taskpack.profile._section import Positive, Section, Text
from taskpack.profile.layout import LayerList


class Generate(Section):
    """Generation from a layout of its own: TP 1, and one stage unless lists say more."""

    text_layers: LayerList | None = None
    """Text layers on each stage, for models that one NPU cannot hold; null puts all on one."""

    vision_layers: LayerList | None = None
    """Vision layers on each stage, in a list of the same shape."""

    dir: Text | None = None
    """Folder of the weights in this layout; null adds `-generate` to `paths.mm`."""

    image: Text | None = None
    """Picture that inference looks at; null takes the one that MindSpeed-MM ships."""

    prompt: Text = "Describe this image and keep it within 100 words."
    """What inference is asked about it."""

    max_new_tokens: Positive = 256
    """Longest answer in tokens."""

    dataset: Literal["ai2d_test", "mmmu_dev_val", "docvqa_val", "chartqa_test"] = "ai2d_test"
    """What evaluation measures."""

    dataset_file: Text = "./AI2D_TEST.tsv"
    """Its rows, as a TSV file."""

    results: Text = "./evaluation_outputs/"
    """Folder of the evaluation's tables."""
