"""Time merging an adapter against a plain copy of the base, and planning the merge of a 32B model.

The 3B base has its true shapes and random finite weights, and the adapter one of rank 8 on every
linear of the text layers. The 32B base is rank files of true size without content (holes): the
merge is planned and checked, and its adapter read, but nothing is copied. Run it with `make bench`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from bench_weights import MODELS, VISION, Case, Run, build_hf, compare, measure
from taskpack.parallel import PipelineSplit
from taskpack.weights import Layout
from taskpack.weights.adapter import ADAPTER_FILE, PEFT_PREFIX, adapted_entries
from taskpack.weights.adapter_open import open_adapter
from taskpack.weights.hf_config import HfConfig, parse_hf_config
from taskpack.weights.mm_checkpoint import layout_record, mm_output, mm_source, model_of
from taskpack.weights.mm_folder import read_mm_folder
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.peft_config import ADAPTER_CONFIG, peft_config_text
from taskpack.weights.plan import check_law, make_plan
from taskpack.weights.rows import entries
from taskpack.weights.run import Side
from taskpack.weights.safetensors_file import lay_out_safetensors
from taskpack.weights.sides import mm_side

R, ALPHA = 8, 16
CONFIG_32B = {
    "model_type": "qwen2_5_vl",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 27648,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "vision_config": {**VISION, "intermediate_size": 3456},
}
LAYOUT_32B = (
    "--tp",
    "2",
    "--llm-layers",
    "[4,9,9,9,9,9,9,6]",
    "--vit-layers",
    "[32,0,0,0,0,0,0,0]",
)
LAYOUT_3B = ("--tp", "2", "--llm-layers", "[18,18]", "--vit-layers", "[32,0]")


def build_peft(folder: Path, model: HfConfig) -> None:
    """Write an adapter on every text layer; fused modules share lora_A."""
    folder.mkdir()
    base = entries(model.family, model.dims, canonical=False, tied=model.tied)
    shapes: dict[str, tuple[int, ...]] = {}
    for item in adapted_entries(base, R):
        if item.base.module == "text":
            for entry in (item.a, item.b):
                for name, shape in entry.tensors.items():
                    shapes |= dict.fromkeys(entry.spelled[name], shape)
    specs = [TensorSpec("", PEFT_PREFIX + name, "bf16", shape) for name, shape in shapes.items()]
    out = lay_out_safetensors(ADAPTER_FILE, specs)
    with (folder / ADAPTER_FILE).open("wb") as file:
        file.write(out.head[0][1])
        for spec in specs:
            # one seed, so that modules that are fused have the same lora_A
            values = np.random.default_rng(2).normal(0, 0.01, spec.shape).astype(np.float32)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    modules = {name.partition(".lora_")[0] for name in shapes}
    (folder / ADAPTER_CONFIG).write_text(peft_config_text(modules, r=R, alpha=ALPHA))


def build_holes(folder: Path, model: HfConfig, layout: Layout) -> None:
    """Write rank files of true size that hold nothing but their directories."""
    base = entries(model.family, model.dims, canonical=False, tied=model.tied)
    stored = mm_side(base, layout, tied=model.tied)
    record = layout_record(model, layout, Side(stored, {}, {}, ""), dtype="bf16", release=None)
    output = mm_output(folder, layout, stored, dtype="bf16", record=record)
    for path, text in output.texts.items():
        folder.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    for out in output.outs.values():
        (folder / out.path).parent.mkdir(parents=True)
        with (folder / out.path).open("wb") as file:
            file.truncate(out.size)
            no_crcs = {spec.address: 0 for spec in out.specs}
            for offset, content in (*out.head, *out.tail(no_crcs)):
                file.seek(offset)
                file.write(content)


def plan_merge(base_dir: Path, adapter_dir: Path) -> None:
    """Do all of a merge but the copying."""
    folder = read_mm_folder(base_dir)
    model = model_of(folder)
    source, layout = mm_source(folder, model, None)
    adapter = open_adapter(adapter_dir, model, base_layout=layout)
    plan = make_plan(source.stored, source.stored, source.infos)
    check_law(source.stored, source.stored, ())
    with adapter.delta() as delta:
        touched = sum(delta.touches(target) for job in plan.jobs for target in job.targets)
    print(f"{len(plan.jobs)} jobs, {touched} of {len(source.stored)} tensors change")


def taskpack(*words: object) -> Run:
    """Run a command to its end."""
    return measure([sys.executable, "-m", "taskpack", *map(str, words)])


def time_plan(root: Path) -> None:
    """Plan the merge of 32B and print what it took."""
    model = parse_hf_config(CONFIG_32B, where="bench")
    (root / "hf").mkdir()
    (root / "hf" / "config.json").write_text(json.dumps(CONFIG_32B))
    layers = PipelineSplit.parse(json.loads(LAYOUT_32B[3]))
    vision = PipelineSplit.parse(json.loads(LAYOUT_32B[5]))
    build_holes(root / "mm", model, Layout(2, layers, vision))
    build_peft(root / "peft", model)
    more = ("--hf-ref", root / "hf", *LAYOUT_32B)
    taskpack("lora", "from-peft", "--peft", root / "peft", "--out", root / "adapter", *more)
    size = sum(path.stat().st_size for path in (root / "mm").rglob("*.pt"))
    run = measure([sys.executable, __file__, "--plan", str(root / "mm"), str(root / "adapter")])
    print(
        f"32B merge plan     {run.seconds:7.2f} s  for {size / 2**30:.1f} GiB in"
        f" {len(list((root / 'mm').rglob('*.pt')))} rank files"
        f"  anonymous {run.anonymous / 2**20:6.0f} MiB",
        flush=True,
    )


def time_merges(root: Path, rounds: int, *, sync: bool, cold: bool) -> None:
    """Merge and export 3B, alternated with a copy."""
    places = {name: root / name for name in ("hf", "mm", "peft", "adapter", "out")}
    build_hf(places["hf"], MODELS["3b"])
    model = parse_hf_config(MODELS["3b"], where="bench")
    build_peft(places["peft"], model)
    taskpack("convert", "hf-to-mm", "--hf", places["hf"], "--mm", places["mm"], *LAYOUT_3B)
    more = ("--hf-ref", places["hf"], *LAYOUT_3B)
    taskpack("lora", "from-peft", "--peft", places["peft"], "--out", places["adapter"], *more)
    merge = ("lora", "merge", "--base", "{mm}", "--adapter", "{adapter}", "--out", "{out}")
    export = ("export", "--base", "{mm}", "--adapter", "{adapter}", "--hf-ref", "{hf}")
    for case in (
        Case("lora merge TP2 PP2", merge, "mm"),
        Case("export TP2 PP2", (*export, "--hf", "{out}"), "mm"),
    ):
        compare(case, places, rounds, sync=sync, cold=cold)


def main() -> None:
    """Build the inputs and time every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to put the files; a temporary folder")
    parser.add_argument("--no-sync", action="store_true", help="copy without fsync")
    parser.add_argument("--cold", action="store_true", help="drop the source from the cache first")
    parser.add_argument("--plan", nargs=2, type=Path, metavar="DIR", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plan:
        plan_merge(*args.plan)
        return
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        time_plan(Path(scratch))
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        time_merges(Path(scratch), args.rounds, sync=not args.no_sync, cold=args.cold)


if __name__ == "__main__":
    main()
