"""What became of every tensor: totals for the caller, details beside each file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import xxhash

from taskpack import __version__
from taskpack.errors import CheckpointError, shorten
from taskpack.weights.out_file import OutFile, TensorKey
from taskpack.weights.plan import Address, Plan
from taskpack.weights.tensors import TensorInfo

ACCOUNT_FILE = "taskpack_account.json"
ACCOUNT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Account:
    """Totals of one run. Every source tensor is used, compared or dropped; none is left over.

    Attributes:
        read_tensors: Source tensors that gave rows.
        read_bytes: Their bytes.
        compared_tensors: Source tensors that hold rows a second time and were found equal.
        written_tensors: Target tensors written.
        written_bytes: Their bytes.
        replicated_bytes: Written bytes beyond one copy of the model.
        dropped: Source entries left out, with the reason.
        strays: Files beside an index that it does not name.
        dtype: Element type written.
        cast_from: Element type read, where it differs.
    """

    read_tensors: int
    read_bytes: int
    compared_tensors: int
    written_tensors: int
    written_bytes: int
    replicated_bytes: int
    dropped: Mapping[str, str]
    dtype: str
    cast_from: str | None = None
    strays: Sequence[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Give the totals as a plain record."""
        return {
            "read": {"tensors": self.read_tensors, "bytes": self.read_bytes},
            "compared": {"tensors": self.compared_tensors},
            "written": {"tensors": self.written_tensors, "bytes": self.written_bytes},
            "replicated": {"bytes": self.replicated_bytes},
            "dropped": {"count": len(self.dropped), "reasons": _by_reason(self.dropped)},
            "unexplained": 0,
            "dtype": self.dtype,
            "cast_from": self.cast_from,
            "strays": list(self.strays),
        }

    def __str__(self) -> str:
        text = (
            f"{self.read_tensors} tensors read, {self.written_tensors} written"
            f" ({self.written_bytes / 2**30:.2f} GiB {self.dtype})"
        )
        if self.compared_tensors:
            text += f", {self.compared_tensors} replicas compared"
        for reason, count in _by_reason(self.dropped).items():
            text += f", {count} dropped ({reason})"
        return text + ", 0 unexplained"


def _by_reason(dropped: Mapping[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in dropped.values():
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def settle(
    plan: Plan, infos: Mapping[Address, TensorInfo], dropped: Mapping[str, str], *, where: str
) -> tuple[int, int, int]:
    """Check that every source tensor is used, compared or dropped.

    Returns:
        Tensors used, their bytes, and tensors compared.

    Raises:
        CheckpointError: Some tensor is none of these.
    """
    places = {(info.path, info.offset): address for address, info in infos.items()}
    compared = {
        places[replica.second.path, replica.second.offset] for replica in plan.replicas
    } - plan.used
    unexplained = [
        address
        for address in infos
        if address not in plan.used and address not in compared and address[2] not in dropped
    ]
    if unexplained:
        raise CheckpointError(
            f"{len(unexplained)} tensors would be left out:"
            f" {shorten([name for _, _, name in unexplained])}",
            where=where,
            why="every tensor must be used, or dropped by name with a reason",
            fix="report this; it is a fault of the family's table",
        )
    read_bytes = sum(infos[address].nbytes for address in plan.used)
    return len(plan.used), read_bytes, len(compared)


def shard_account(shard: str) -> str:
    """Name the account of a safetensors file."""
    return f"{shard.removesuffix('.safetensors')}.{ACCOUNT_FILE}"


def file_account(out: OutFile, digests: Mapping[TensorKey, str], *, source: str) -> str:
    """Write the account of one file: each tensor with type, shape and digest of its bytes."""
    tensors: dict[str, dict[str, Any]] = {}
    for spec in out.specs:
        entry = [spec.dtype, list(spec.shape), f"xxh3:{digests[spec.address]}"]
        tensors.setdefault(spec.key, {})[spec.name] = entry
    record = {
        "format": ACCOUNT_FORMAT,
        "file": PurePosixPath(out.path).name,
        "file_bytes": out.size,
        "tensors": len(out.specs),
        "bytes": sum(spec.nbytes for spec in out.specs),
        "source": source,
        "tool": f"taskpack {__version__}",
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    lines.append(f'  "content": {json.dumps(tensors, indent=1)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def source_digest(infos: Mapping[Address, TensorInfo]) -> str:
    """Digest of the names, types and shapes of a source."""
    lines = sorted(
        f"{file}\t{key}\t{name}\t{info.dtype}\t{list(info.shape)}"
        for (file, key, name), info in infos.items()
    )
    return "xxh3:" + xxhash.xxh3_128("\n".join(lines).encode()).hexdigest()
