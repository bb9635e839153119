"""A CPU stand-in for MindSpeed-MM's `pretrain_vlm.py`: same flags, files, log and checkpoints.

Compute is data parallel over a few processes on transformers and peft; tensor and pipeline
parallel sizes appear only in the checkpoints, which are read and written in MindSpeed-MM's layout.
"""

from taskpack.rehearse.engine.main import main

__all__ = ["main"]
