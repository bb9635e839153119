"""A place where a reader of the README sits: the repository, a checkout of MindSpeed-MM, a home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).parents[2]
COPIED = (
    "docker",
    "tasks",
    "templates",
    "tools",
    "Makefile",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
LAYOUT = ("--tp", "2", "--llm-layers", "[1,3]", "--vit-layers", "[4,0]")
# as published with Qwen2.5-VL-7B-Instruct
CONFIG_7B = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "vocab_size": 152064,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "tie_word_embeddings": False,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "tokens_per_second": 2,
    },
}
LLAVA_ROWS = [
    {
        "id": "cat",
        "image": "photos/cat.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat is it?"},
            {"from": "gpt", "value": "A cat."},
        ],
    },
    {
        "id": "greeting",
        "conversations": [
            {"from": "human", "value": "Good morning."},
            {"from": "gpt", "value": "Good morning!"},
        ],
    },
]


@dataclass
class Workshop:
    """Runs commands one by one, as one terminal would: `cd` lasts.

    Attributes:
        repo: Copy of the repository; commands start here.
        home: The user's home, with `MindSpeed-MM` in it.
    """

    repo: Path
    home: Path
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.repo

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell of its own, in the folder where the last one ended."""
        after = self.home / ".folder"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", f'{command}\ncode=$?; pwd >"$AFTER"; exit $code'],
            cwd=self.folder,
            env={
                "PATH": path,
                "HOME": str(self.home),
                "AFTER": str(after),
                "PYTHONPATH": str(self.repo / "tools"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.folder = Path(after.read_text(encoding="utf-8").strip())
        return done


def open_workshop(root: Path) -> Workshop:
    """Lay the place out. Nothing in it is installed but the tools themselves."""
    repo, home = root / "taskpack", root / "home"
    for name in COPIED:
        copy = shutil.copytree if (REPO / name).is_dir() else shutil.copy2
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        copy(REPO / name, repo / name)
    # `make` finds the tools where `make setup` would have put them
    (repo / ".venv").mkdir()
    (repo / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (repo / ".venv" / ".ready").touch()
    checkout = home / "MindSpeed-MM"
    checkout.mkdir(parents=True)
    (checkout / "pretrain_vlm.py").touch()
    for folder in (repo, checkout):
        _put_inputs(folder)
    return Workshop(repo, home)


def _put_inputs(folder: Path) -> None:
    photos = folder / "data" / "photos"
    photos.mkdir(parents=True)
    (photos / "cat.png").write_bytes(b"the converter looks for the file, not into it")
    (folder / "data" / "llava_instruct.json").write_text(json.dumps(LLAVA_ROWS), encoding="utf-8")
    for model in ("Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-32B-Instruct"):
        (folder / "ckpt" / "hf_path" / model).mkdir(parents=True)
    config = folder / "ckpt" / "hf_path" / "Qwen2.5-VL-7B-Instruct" / "config.json"
    config.write_text(json.dumps(CONFIG_7B), encoding="utf-8")


def put_weights(folder: Path) -> None:
    """Put a small model into `hf/` and an adapter on it into `save_dir/`."""
    builders = REPO / "tests" / "unit" / "weights"
    if str(builders) not in sys.path:
        sys.path.append(str(builders))
    from builders import convert, make_adapter, make_hf

    hf = make_hf(folder / "hf")
    base = folder / "base_of_the_adapter"
    assert convert(hf, base, *LAYOUT) == 0
    make_adapter(folder / "save_dir", base)
    shutil.rmtree(base)
