"""Whether an output may be put where it was asked for, and under which names it grows there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from taskpack.errors import HostError, ProfileError, TaskpackError, raise_collected
from taskpack.weights.account import ACCOUNT_FILE
from taskpack.weights.folders import is_hf, is_mm, is_peft
from taskpack.weights.layout import LAYOUT_FILE

JOURNAL_FILE = "taskpack_journal.jsonl"
_SPARE_BYTES = 64 << 20


def partial_of(target: Path) -> Path:
    """Name the folder in which a target is built."""
    return target.with_name(target.name + ".partial")


def replaced_of(target: Path) -> Path:
    """Name the folder that holds a replaced target while the new one takes its name."""
    return target.with_name(target.name + ".replaced")


def check_target(target: Path, sources: Sequence[Path], *, overwrite: bool, resume: bool) -> None:
    """Refuse a target that is in use, not empty, or mixed up with a source.

    Raises:
        ProfileError: The target and a source lie inside each other.
        HostError: The target is not free, or cannot be written.
    """
    if target.name in ("", ".."):
        raise HostError(
            f"the output {target} has no name of its own",
            where=str(target.resolve()),
            why="the finished folder is renamed onto that path",
            fix="name a folder that does not exist yet",
        )
    _refuse_overlap(target, sources)
    raise_collected(
        [
            *_target_faults(target, overwrite=overwrite),
            *_neighbour_faults(target, overwrite=overwrite, resume=resume),
        ]
    )
    existing = next(parent for parent in target.absolute().parents if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise HostError(
            f"the folder {existing} cannot be written",
            where=str(existing),
            why="the output is built beside its final place",
            fix="choose another output folder, or have its permissions changed",
        )


def _refuse_overlap(target: Path, sources: Sequence[Path]) -> None:
    places = [path.resolve() for path in (target, partial_of(target), replaced_of(target))]
    for place, source in product(places, sources):
        other = source.resolve()
        if place == other or other in place.parents or place in other.parents:
            raise ProfileError(
                f"the output folder {target} and the input folder {source} lie in each other",
                where=str(place),
                why="the output would change the folder that it is made from",
                fix="name an output folder beside the input",
            )


def _target_faults(target: Path, *, overwrite: bool) -> Iterable[TaskpackError]:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        yield HostError(
            f"the output {target} is a link or a file",
            where=str(target),
            why="the finished folder is renamed onto that path",
            fix="name a folder that does not exist yet",
        )
    elif os.path.ismount(target):
        yield HostError(
            f"the output {target} is a mount point",
            where=str(target),
            why="the output is built beside its final place and renamed onto it",
            fix=f"name a folder inside it, such as {target / 'weights'}",
        )
    elif target.is_dir() and any(target.iterdir()):
        if not overwrite:
            yield HostError(
                f"the output folder {target} is not empty",
                where=str(target),
                why="finished weights are never replaced unasked",
                fix="name another folder, or add --overwrite",
            )
        elif not _is_replaceable(target):
            yield HostError(
                f"the output folder {target} holds more than converted weights",
                where=str(target),
                why="--overwrite replaces weights that a conversion made, nothing else: no other"
                " files, no training checkpoints",
                fix="name another folder, or remove this one yourself",
            )


def _neighbour_faults(target: Path, *, overwrite: bool, resume: bool) -> Iterable[TaskpackError]:
    partial, replaced = partial_of(target), replaced_of(target)
    if partial.exists() and not _is_ours(partial):
        yield HostError(
            f"{partial} is in the way, and no run of taskpack made it",
            where=str(partial),
            why="the output is built there",
            fix="move it elsewhere, or name another output folder",
        )
    elif partial.exists() and not (overwrite or resume):
        yield HostError(
            f"an earlier run left {partial}",
            where=str(partial),
            why="it was interrupted before the last step, or is still running",
            fix="add --resume to go on, or --overwrite to start anew",
        )
    if replaced.exists():
        yield HostError(
            f"{replaced} is in the way",
            where=str(replaced),
            why="an interrupted --overwrite leaves the old weights there: it may be the only copy",
            fix="move it back, or elsewhere, or delete it",
        )


def _is_ours(folder: Path) -> bool:
    """Tell a folder that a run made, or an empty one, from any other."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    names = {path.name for path in folder.iterdir()}
    marks = {JOURNAL_FILE, LAYOUT_FILE}
    return not names or bool(names & marks) or any(ACCOUNT_FILE in name for name in names)


def _is_replaceable(folder: Path) -> bool:
    """Tell weights that a conversion made from everything that is worth more."""
    trained = [
        path for path in folder.glob("iter_*/mp_rank_*") if not (path / ACCOUNT_FILE).is_file()
    ]
    return not trained and (_is_ours(folder) or is_hf(folder) or is_mm(folder) or is_peft(folder))


def check_space(target: Path, needed: int) -> None:
    """Refuse to start when the disk cannot hold the output.

    Raises:
        HostError: There is too little space.
    """
    existing = next(parent for parent in target.absolute().parents if parent.exists())
    free = shutil.disk_usage(existing).free
    partial = partial_of(target)
    if partial.is_dir():
        free += sum(512 * path.stat().st_blocks for path in partial.rglob("*") if path.is_file())
    if needed + _SPARE_BYTES > free:
        raise HostError(
            f"the disk has {free / 2**20:.0f} MiB free, the output needs"
            f" {(needed + _SPARE_BYTES) / 2**20:.0f} MiB with a reserve",
            where=str(existing),
            why="a full disk would leave a checkpoint that cannot be used",
            fix="free some space, or name an output folder on another disk",
        )
