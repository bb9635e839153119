"""The image processor that runs without torchvision, whatever transformers calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load_image_processor(hf_dir: Path) -> Any:
    """Load a folder's image processor in its Pillow form.

    transformers 5 names that form of its own; before, it is the plain class.
    """
    import transformers

    name = "Qwen2VLImageProcessorPil"
    if not hasattr(transformers, name):
        name = "Qwen2VLImageProcessor"
    return getattr(transformers, name).from_pretrained(hf_dir)
