"""One engine process: parse, load, train, save."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.errors import TaskpackError
from taskpack.profile import load_release
from taskpack.rehearse.engine.flags import Flags, parse_flags
from taskpack.rehearse.engine.settings import Settings, read_settings

if TYPE_CHECKING:
    from torch import nn

    from taskpack.rehearse.engine.model import Trainable
    from taskpack.rehearse.engine.train import Process

CLUSTER_SIZE = "TASKPACK_CLUSTER_SIZE"
"""Environment: NPUs of the real launch, from torchrun's nnodes x nproc_per_node."""
TRAINED_DIR = "TASKPACK_TRAINED_DIR"
"""Environment: a folder for the trained weights in plain HF or peft form."""


def main(release: str, argv: Sequence[str] | None = None) -> int:
    """Run one process of the engine and return its exit code."""
    try:
        flags = parse_flags(
            sys.argv[1:] if argv is None else argv, load_release(release).flags, release=release
        )
        cluster_size = int(os.environ.get(CLUSTER_SIZE, os.environ.get("WORLD_SIZE", "1")))
        settings = read_settings(flags, cluster_size=cluster_size)
        _run(settings, flags)
    except TaskpackError as error:
        # Every process finds the same fault; one of them says so.
        if os.environ.get("RANK", "0") == "0":
            print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _run(settings: Settings, flags: Flags) -> None:
    import torch
    import torch.distributed as dist

    from taskpack.rehearse.engine.train import Process

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("WORLD_SIZE", "1"))))
    torch.manual_seed(settings.seed)
    dist.init_process_group("gloo")
    try:
        _train(settings, flags, Process(dist.get_rank(), dist.get_world_size()))
    finally:
        dist.destroy_process_group()


def _train(settings: Settings, flags: Flags, process: Process) -> None:
    from transformers import AutoTokenizer

    from taskpack.rehearse.engine.checkpoint import keep_trained
    from taskpack.rehearse.engine.dataset import SampleMaker, read_rows
    from taskpack.rehearse.engine.model import make_trainable
    from taskpack.rehearse.engine.train import Batches, train
    from taskpack.rehearse.processor import load_image_processor

    def say(line: str) -> None:
        if process.prints:
            print(line, flush=True)

    hf_ref = settings.hf_ref
    trainable = make_trainable(_load(settings, process), settings, hf_ref)
    rows, dropped = read_rows(settings.data)
    tokenizer = AutoTokenizer.from_pretrained(hf_ref)
    processor = load_image_processor(hf_ref)
    maker = SampleMaker(settings.data, tokenizer, processor, seq_length=settings.seq_length)
    batches = Batches(rows, maker, settings, pad_id=tokenizer.pad_token_id)
    for line in _introduction(settings, flags, process, trainable):
        say(line)
    say(f"data: {len(rows)} rows, {dropped} left out because their roles do not alternate")
    losses = train(trainable, batches, settings, process, args=flags.to_namespace(), say=say)
    if process.rank == 0 and TRAINED_DIR in os.environ:
        keep_trained(trainable, Path(os.environ[TRAINED_DIR]), hf_ref=hf_ref, losses=losses)


def _load(settings: Settings, process: Process) -> nn.Module:
    """Load the rank files: the first process joins them, every process reads the result."""
    import torch.distributed as dist

    from taskpack.rehearse.engine.checkpoint import load_as_hf
    from taskpack.rehearse.engine.model import check_structure, load_strictly

    check_structure(settings.structure, settings.hf_ref)
    with tempfile.TemporaryDirectory(prefix="taskpack-engine-") as scratch:
        shared: list[str] = [scratch]
        dist.broadcast_object_list(shared)
        hf_dir = Path(shared[0]) / "hf"
        if process.rank == 0:
            load_as_hf(settings.load, settings.hf_ref, hf_dir, layout=settings.layout)
        dist.barrier()
        model = load_strictly(hf_dir)
        dist.barrier()
    return model


def _introduction(
    settings: Settings, flags: Flags, process: Process, trainable: Trainable
) -> Iterator[str]:
    """Say what runs, what trains, and which flags have no effect on a CPU."""
    yield (
        f"rehearsal engine: {process.size} process(es) share the batches of "
        f"{settings.dp_size} data parallel rank(s); checkpoints have TP {settings.layout.tp_size} "
        f"x PP {settings.layout.pp_size}"
    )
    yield f"accepted without effect here: {' '.join(flags.unread())}"
    if trainable.peft is not None:
        trained, total = trainable.peft.get_nb_trainable_parameters()
        share = 100 * trained / total
        yield f"trainable params: {trained:,} || all params: {total:,} || trainable%: {share:.4f}"
