"""Time conversions of true-shape weights against a plain copy of the same bytes.

Every figure is a ratio to `cp -r` of the source folder in the same run, alternated with it, the
first round discarded. `--cold` drops the source from the page cache before each run. Run it with
`make bench`; it needs about four times the model's size of free disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from taskpack.weights.hf_config import parse_hf_config
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.rows import entries
from taskpack.weights.safetensors_file import INDEX_FILE, lay_out_safetensors

VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_chans": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
MODELS = {
    "3b": {
        "model_type": "qwen2_5_vl",
        "num_hidden_layers": 36,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "vision_config": VISION,
    },
    "72b-cut": {
        "model_type": "qwen2_5_vl",
        "num_hidden_layers": 2,
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 29568,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "vision_config": {**VISION, "intermediate_size": 3456},
    },
}
SHARD_BYTES = 4 << 30


@dataclass(frozen=True)
class Case:
    """One conversion: its arguments, with {hf} and {mm} for the inputs and {out} for the output."""

    name: str
    arguments: tuple[str, ...]
    source: str  # folder whose bytes `cp` copies


@dataclass(frozen=True)
class Run:
    """What one process took."""

    seconds: float
    anonymous: int  # peak bytes of anonymous memory
    resident: int  # peak bytes resident


def build_hf(folder: Path, config: dict[str, object]) -> None:
    """Write a checkpoint with the true shapes and random weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    model = parse_hf_config(config, where="bench")
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries(model.family, model.dims, canonical=True, tied=model.tied):
        shapes |= entry.tensors
    shards: list[list[TensorSpec]] = [[]]
    for name, shape in shapes.items():
        spec = TensorSpec("", name, "bf16", shape)
        if sum(s.nbytes for s in shards[-1]) + spec.nbytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(spec)
    values = np.random.default_rng(1).normal(0, 0.02, 1 << 23).astype(np.float32)
    block = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    weight_map = {}
    for number, specs in enumerate(shards, start=1):
        out = lay_out_safetensors(f"model-{number:05d}-of-{len(shards):05d}.safetensors", specs)
        weight_map |= {spec.name: out.path for spec in specs}
        with (folder / out.path).open("wb") as file:
            file.write(out.head[0][1])
            while file.tell() < out.size:
                file.write(block[: out.size - file.tell()])
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def measure(command: Sequence[str]) -> Run:
    """Run a process to its end, watching its memory."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    anonymous = 0
    while process.poll() is None:
        anonymous = max(anonymous, _anonymous(process.pid))
        time.sleep(0.02)
    seconds = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return Run(seconds, anonymous, _largest_child())


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def _largest_child() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def copy_command(source: Path, target: Path, *, sync: bool) -> list[str]:
    """Give the plain copy: `cp`, and an fsync of every file where the other side has one."""
    finish = f" && find {target} -type f -print0 | xargs -0 sync" if sync else ""
    return ["sh", "-c", f"cp -r {source} {target}{finish}"]


def drop_from_cache(folder: Path) -> None:
    """Let the kernel forget the pages of every file."""
    for path in folder.rglob("*.*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def compare(case: Case, places: dict[str, Path], rounds: int, *, sync: bool, cold: bool) -> None:
    """Alternate a conversion and a copy; print the medians and the spread."""
    ours: list[Run] = []
    theirs: list[Run] = []
    out = places["out"]
    for _ in range(rounds + 1):
        for runs, command in (
            (ours, [sys.executable, "-m", "taskpack", *case.arguments]),
            (theirs, copy_command(places[case.source], out, sync=sync)),
        ):
            shutil.rmtree(out, ignore_errors=True)
            os.sync()
            if cold:
                drop_from_cache(places[case.source])
            filled = [part.format(**places) for part in command]
            runs.append(measure(filled))
    shutil.rmtree(out, ignore_errors=True)
    ratios = [a.seconds / b.seconds for a, b in zip(ours[1:], theirs[1:], strict=True)]
    print(
        f"{case.name:<18} {statistics.median(r.seconds for r in ours[1:]):7.2f} s"
        f"  cp {statistics.median(r.seconds for r in theirs[1:]):7.2f} s"
        f"  ratio {statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        f"  anonymous {max(r.anonymous for r in ours) / 2**20:6.0f} MiB",
        flush=True,
    )


def cases(model: str) -> list[Case]:
    """List the conversions of a model."""
    layers = MODELS[model]["num_hidden_layers"]
    half = int(str(layers)) // 2
    one = ("--tp", "1", "--llm-layers", f"[{layers}]", "--vit-layers", "[32]")
    two = ("--tp", "2", "--llm-layers", f"[{half},{half}]", "--vit-layers", "[32,0]")
    hf_to_mm = ("convert", "hf-to-mm", "--hf", "{hf}", "--mm", "{out}")
    target = tuple(part.replace("--", "--to-") for part in one)
    return [
        Case("hf-to-mm TP1 PP1", (*hf_to_mm, *one), "hf"),
        Case("hf-to-mm TP2 PP2", (*hf_to_mm, *two), "hf"),
        Case(
            "mm-to-hf TP2 PP2",
            ("convert", "mm-to-hf", "--mm", "{mm}", "--hf-ref", "{hf}", "--hf", "{out}"),
            "mm",
        ),
        Case(
            "resplit to TP1",
            ("convert", "resplit", "--mm", "{mm}", "--out", "{out}", *target),
            "mm",
        ),
    ]


def main() -> None:
    """Build the inputs and time every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="3b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to put the files; a temporary folder")
    parser.add_argument("--no-sync", action="store_true", help="copy without fsync")
    parser.add_argument("--cold", action="store_true", help="drop the source from the cache first")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        root = Path(scratch)
        places = {"hf": root / "hf", "mm": root / "mm", "out": root / "out"}
        build_hf(places["hf"], MODELS[args.model])
        for case in cases(args.model):
            if case.source == "mm" and not places["mm"].exists():
                # three models at once would not fit the page cache, and no source would be warm
                cut_for(places, args.model)
                drop_from_cache(places["hf"])
            compare(case, places, args.rounds, sync=not args.no_sync, cold=args.cold)


def cut_for(places: Mapping[str, Path], model: str) -> None:
    """Make the checkpoint that the cases with a Megatron source read."""
    (split,) = (case for case in cases(model) if case.name == "hf-to-mm TP2 PP2")
    words = (word.format(**{**places, "out": places["mm"]}) for word in split.arguments)
    measure([sys.executable, "-m", "taskpack", *words])


if __name__ == "__main__":
    main()
