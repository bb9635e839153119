"""Names in a folder of weights, and what kind of weights they tell of."""

from __future__ import annotations

from pathlib import Path

TRACKER_FILE = "latest_checkpointed_iteration.txt"
RANK_FILE = "model_optim_rng.pt"


def iteration_name(iteration: str) -> str:
    """Name the folder of an iteration, given as `release` or a number."""
    return "release" if iteration == "release" else f"iter_{int(iteration):07d}"


def is_hf(folder: Path) -> bool:
    """Tell a Hugging Face folder from a checkpoint."""
    return (folder / "config.json").is_file() or any(folder.glob("*.safetensors"))


def is_mm(folder: Path) -> bool:
    """Tell a checkpoint from any other folder."""
    return (folder / TRACKER_FILE).is_file() or any(folder.glob("*/mp_rank_*"))


def is_peft(folder: Path) -> bool:
    """Tell a peft folder from a checkpoint."""
    return any(folder.glob("adapter_*"))
