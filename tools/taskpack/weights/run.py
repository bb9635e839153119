"""Carry out a conversion: plan, check the law, copy, account, publish."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import xxhash

from taskpack.weights.account import Account, file_account, settle, source_digest
from taskpack.weights.copy_engine import (
    BUFFER_BYTES,
    Change,
    CopyEngine,
    worker_count,
)
from taskpack.weights.dtypes import DTYPES
from taskpack.weights.out_dir import OutDir
from taskpack.weights.out_file import OutFile, TensorKey
from taskpack.weights.plan import (
    Address,
    Job,
    Plan,
    Target,
    check_law,
    make_plan,
    one_dtype,
    refuse_other_types,
)
from taskpack.weights.progress import Progress
from taskpack.weights.replicas import refuse_differences
from taskpack.weights.sides import Stored
from taskpack.weights.sink import Written
from taskpack.weights.target import check_space
from taskpack.weights.tensors import TensorInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What every conversion can be told.

    Attributes:
        dtype: Element type to write; `keep` keeps the source's.
        threads: Copying threads; 0 takes one more than there are processors, at most 8.
        buffer_bytes: What each thread reads and writes at once.
        pad_vocab: Pad a vocabulary that tensor parallelism does not divide.
        resume: Go on with an interrupted run.
        overwrite: Replace a target that is not empty, or an interrupted run.
        release: MindSpeed-MM release to note in the layout.
        ranks: Rank folders to write, for a host that needs only those; None writes all.
        untie: Keep a head that differs from the embedding it should share.
    """

    dtype: str = "keep"
    threads: int = 0
    buffer_bytes: int = BUFFER_BYTES
    pad_vocab: bool = False
    resume: bool = False
    overwrite: bool = False
    release: str | None = None
    ranks: frozenset[str] | None = None
    untie: bool = False

    @property
    def workers(self) -> int:
        """Number of copying threads."""
        return worker_count(self.threads)


DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a conversion: what it must hold, and for a source where that is.

    Attributes:
        stored: Its tensors.
        infos: Where the bytes are; empty for a target.
        dropped: Names left out, with the reason.
        where: Folder, for messages.
    """

    stored: Sequence[Stored]
    infos: Mapping[Address, TensorInfo]
    dropped: Mapping[str, str]
    where: str


@dataclass(slots=True)
class Output:
    """What is to be written besides the tensors.

    Attributes:
        target: The folder.
        outs: Its files, by the file name of the target side.
        texts: Small files by path.
        copies: Files to copy, by path.
        account_of: Where the account of a file belongs.
    """

    target: Path
    outs: Mapping[str, OutFile]
    texts: Mapping[str, str]
    account_of: Callable[[str], str]
    copies: Mapping[str, Path] = field(default_factory=dict)


def dtype_to_write(source: Side, options: Options) -> str:
    """Give the element type that the options and the source lead to.

    Raises:
        CheckpointError: The tensors have several types to keep, or one that weights cannot have.
    """
    refuse_other_types(source.infos, where=source.where)
    if options.dtype != "keep":
        return options.dtype
    return one_dtype(source.infos, where=source.where)


def run(
    source: Side,
    stored: Sequence[Stored],
    output: Output,
    *,
    dtype: str,
    options: Options,
    strays: Sequence[str] = (),
    change: Change | None = None,
) -> Account:
    """Carry out a conversion: plan, check the law, copy, account, publish.

    Raises:
        CheckpointError: Replicas differ, or a tensor is left over.
        HostError: The disk is too small, or another run writes the same target.
    """
    plan = make_plan(stored, source.stored, source.infos)
    check_law(stored, source.stored, source.dropped)
    used, used_bytes, compared = settle(plan, source.infos, source.dropped, where=source.where)
    for stray in strays:
        log.warning("note: %s is not named by the index and is left out", stray)
    check_space(output.target, sum(out.size for out in output.outs.values()))
    stored = [item for item in stored if item.file in output.outs]
    written = sum(prod(item.shape) for item in stored) * DTYPES[dtype].itemsize
    read_dtypes = {info.dtype for info in source.infos.values()} - {dtype}
    if read_dtypes:
        log.info("casting %s to %s", ", ".join(sorted(read_dtypes)), dtype)
    _copy(plan, source, output, dtype=dtype, options=options, change=change)
    return Account(
        read_tensors=used,
        read_bytes=used_bytes,
        compared_tensors=compared,
        written_tensors=len(stored),
        written_bytes=written,
        replicated_bytes=written - _model_bytes(stored, DTYPES[dtype].itemsize),
        dropped=source.dropped,
        dtype=dtype,
        cast_from=", ".join(sorted(read_dtypes)) or None,
        strays=strays,
    )


def _model_bytes(stored: Sequence[Stored], itemsize: int) -> int:
    """Count the bytes of a side once, however often rows are stored."""
    sizes: dict[tuple[str, int, int], int] = {}
    for item in stored:
        for piece in item.pieces:
            rows = piece.stop - piece.start
            shape = (*item.shape[: item.axis], rows, *item.shape[item.axis + 1 :])
            sizes[piece.tensor, piece.start, piece.stop] = prod(shape) * itemsize
    return sum(sizes.values())


def _copy(
    plan: Plan,
    source: Side,
    output: Output,
    *,
    dtype: str,
    options: Options,
    change: Change | None,
) -> None:
    outs = output.outs
    paths = {file: out.path for file, out in outs.items()}
    sizes = {out.path: out.size for out in outs.values()}
    fingerprint = _fingerprint(source, output, dtype, change)
    folder = OutDir(output.target, list(outs.values()), fingerprint)
    total = sum(spec.nbytes for out in outs.values() for spec in out.specs)
    refuse_differences(plan.replicas, threads=options.workers)
    with folder.opened(resume=options.resume) as ready, Progress(total) as progress:
        engine = CopyEngine(
            folder.partial,
            outs,
            dtype=dtype,
            change=change,
            progress=progress.add_bytes,
            buffer_bytes=options.buffer_bytes,
        )
        try:
            jobs = _restricted(plan.jobs, lambda t: _left(t, paths, ready))

            def done(_job: object, items: Sequence[Written]) -> None:
                for path in folder.record(items, paths):
                    progress.file(path, sizes[path])

            engine.run(jobs, done, threads=options.workers)
        finally:
            engine.files.close()
        folder.finish_empty_files()
        _write_texts(folder, output, source)
        folder.publish(overwrite=options.overwrite)


def _left(
    target: Target, paths: Mapping[str, str], ready: Collection[tuple[str, TensorKey]]
) -> bool:
    """Tell whether a target is to be written here and is not there yet."""
    file = target.stored.file
    return file in paths and (paths[file], target.stored.address[1:]) not in ready


def _restricted(jobs: Sequence[Job], wanted: Callable[[Target], bool]) -> list[Job]:
    kept = [replace(job, targets=tuple(filter(wanted, job.targets))) for job in jobs]
    return [job for job in kept if job.targets]


def _write_texts(folder: OutDir, output: Output, source: Side) -> None:
    origin = source_digest(source.infos)
    for out in output.outs.values():
        text = file_account(out, folder.digests[out.path], source=origin)
        folder.write_text(output.account_of(out.path), text)
    for path, original in output.copies.items():
        folder.write_bytes(path, original.read_bytes())
    for path, text in output.texts.items():
        folder.write_text(path, text)


def _fingerprint(source: Side, output: Output, dtype: str, change: Change | None) -> str:
    """Digest of everything that decides the output's bytes, file times of the inputs included."""
    inputs = {str(info.path): info.path.stat() for info in source.infos.values()}
    facts: dict[str, Any] = {
        "inputs": [[p, s.st_size, s.st_mtime_ns] for p, s in sorted(inputs.items())],
        "source": source_digest(source.infos),
        "outs": [[out.path, out.size] for out in output.outs.values()],
        "texts": dict(output.texts),
        "dtype": dtype,
        "change": change.identity if change is not None else None,
    }
    return xxhash.xxh3_128(json.dumps(facts).encode()).hexdigest()
