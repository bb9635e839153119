"""What can be wrong with a set of rows as a whole."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from taskpack.data.trainer import Columns
from taskpack.profile import Profile

_SHARED = ("nfs", "lustre", "gpfs", "ceph", "cifs", "smb", "glusterfs", "beegfs", "fuse.", "9p")


@dataclass(frozen=True, slots=True)
class SetProblem:
    """One thing that is wrong with the whole set."""

    kind: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Give the problem as plain values."""
        return {"kind": self.kind, "message": self.message}


def judge_set(
    profile: Profile, rows: int, good: int, keys: AbstractSet[str], columns: Columns
) -> list[SetProblem]:
    """Find what stops the trainer although each row is good.

    Args:
        profile: The task.
        rows: Rows of the set.
        good: Those that the trainer takes.
        keys: Keys that at least one row has.
        columns: Names that data.json gives.
    """
    problems = []
    batch = profile.batch.micro * profile.dp
    if good < batch:
        text = (
            f"{good} good rows do not fill one batch of {batch} (batch.micro "
            f"{profile.batch.micro} x {profile.dp} copies): the trainer divides by zero"
        )
        problems.append(SetProblem("too_few_rows", text))
    limit = profile.data.max_samples
    if limit is not None and limit > rows:
        text = f"data.max_samples is {limit}, but there are {rows} rows: the trainer stops there"
        problems.append(SetProblem("max_samples", text))
    for name in (columns.messages, columns.images, columns.videos):
        if name and rows and name not in keys:
            text = f"no row has the key {name!r}, which data.json names: the trainer stops there"
            problems.append(SetProblem("missing_column", text))
    return problems


def network_note(profile: Profile, checkout: Path) -> list[str]:
    """Say when the cache of tokenised rows would lie on a file system that nodes share."""
    folder = (checkout / profile.data.cache_dir).resolve()
    kind = _file_system(folder)
    if not kind.startswith(_SHARED):
        return []
    return [
        f"data.cache_dir {profile.data.cache_dir} lies on {kind}: of several nodes each keeps a "
        "copy of the tokenised rows there; a local disk is faster"
    ]


def _file_system(folder: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.is_file():
        return ""
    best, kind = "", ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        place, this = [*line.split(" "), "", "", ""][1:3]
        if folder.is_relative_to(place or "/") and len(place) >= len(best):
            best, kind = place, this
    return kind
