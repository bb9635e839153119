"""Fine-tune multimodal models with MindSpeed-MM on Ascend NPUs from one profile per model."""

__version__ = "0.1.0"
