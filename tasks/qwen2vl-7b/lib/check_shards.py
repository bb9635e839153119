"""Check that a downloaded HF folder is whole: every shard of the index, header and size.

Only the standard library is used, so the folder can be checked where nothing is installed.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

INDEX = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 100_000_000
"""Largest header that the safetensors format allows."""


class Fault(Exception):
    """A shard that training or conversion could not read."""


def shard_names(folder: Path) -> list[str]:
    """List the files that the index names, or the only shard of a folder without index."""
    index = folder / INDEX
    if not index.is_file():
        if (folder / "model.safetensors").is_file():
            return ["model.safetensors"]
        raise Fault(f"neither {INDEX} nor model.safetensors is there")
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{INDEX} is damaged ({error})") from error
    if not names:
        raise Fault(f"{INDEX} names no shard")
    return names


def expected_bytes(path: Path) -> int:
    """Compute the size that the header promises: 8, the header, and the largest end offset."""
    size = path.stat().st_size
    with path.open("rb") as shard:
        start = shard.read(8)
        header_bytes = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= header_bytes <= min(HEADER_LIMIT_BYTES, size - 8):
            raise Fault(f"{path.name} has no whole header ({size} bytes)")
        raw = shard.read(header_bytes)
    try:
        entries = json.loads(raw)
        ends = [e["data_offsets"][1] for name, e in entries.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Fault(f"the header of {path.name} is damaged ({error})") from error
    return 8 + int(header_bytes) + int(max(ends, default=0))


def shard_fault(path: Path) -> str | None:
    """Compare one shard with its own header; nothing when it is whole."""
    if not path.is_file():
        return f"{path.name} is missing"
    try:
        expected, found = expected_bytes(path), path.stat().st_size
    except Fault as fault:
        return str(fault)
    if expected != found:
        return f"{path.name} has {found} bytes, its header says {expected}"
    return None


def find_faults(folder: Path) -> list[str]:
    """Collect what is wrong with the folder; nothing when it is whole."""
    try:
        names = shard_names(folder)
    except Fault as fault:
        return [str(fault)]
    return [fault for fault in (shard_fault(folder / name) for name in names) if fault]


def main(folder: str) -> int:
    """Print each fault in four lines; 3 when there is one."""
    faults = find_faults(Path(folder))
    for fault in faults:
        print(
            f"error: {fault}\n  where: {folder}\n"
            "  why:   conversion and training need every byte of the weights\n"
            "  fix:   delete that file if it exists, and start the same download again",
            file=sys.stderr,
        )
    if not faults:
        print(f"{folder}: every shard is whole", file=sys.stderr)
    return 3 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
