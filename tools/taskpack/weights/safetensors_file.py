"""Read and lay out safetensors files, by their published format and nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.dtypes import BY_SAFETENSORS, DTYPES
from taskpack.weights.out_file import OutFile, TensorSpec
from taskpack.weights.tensors import TensorInfo, stack_of

INDEX_FILE = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # the limit of the reference implementation


def read_safetensors(path: Path) -> dict[str, TensorInfo]:
    """Read the header of one file and check that its tensors fill the file exactly.

    Raises:
        CheckpointError: The file is absent, cut, or its header contradicts its size.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
            if not 2 <= length <= min(size - 8, _MAX_HEADER):
                raise _damaged(path, f"its header claims {length} bytes, the file has {size}")
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(
            f"the shard {path.name} is missing",
            where=str(path),
            why="every tensor of the model must be read",
            fix="download the missing file again (download_weights.sh resumes)",
        ) from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not JSON ({error})") from None
    return _check_header(path, header, data_start=8 + length, size=size)


def _check_header(
    path: Path, header: object, *, data_start: int, size: int
) -> dict[str, TensorInfo]:
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a table")
    tensors: dict[str, TensorInfo] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end, shape = _numbers_of(path, name, entry)
        dtype = entry.get("dtype")
        if not isinstance(dtype, str | None):
            raise _damaged(path, f"the element type of tensor {name!r} is {dtype!r}")
        if dtype not in BY_SAFETENSORS:
            raise CheckpointError(
                f"tensor {name!r} has the element type {dtype}",
                where=str(path),
                why="only plain types are converted: " + ", ".join(BY_SAFETENSORS),
                fix="use the unquantised weights of the model",
            )
        info = TensorInfo(path, BY_SAFETENSORS[dtype].name, shape, data_start + begin)
        if info.nbytes != end - begin:
            raise _damaged(path, f"tensor {name!r} of shape {list(shape)} has {end - begin} bytes")
        tensors[name] = info
        ranges.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(ranges):
        if begin != at:
            raise _damaged(path, f"tensor {name!r} starts at byte {begin}, not at {at}")
        at = end
    if data_start + at != size:
        raise _damaged(path, f"its header describes {data_start + at} bytes, the file has {size}")
    return tensors


def _numbers_of(path: Path, name: str, entry: object) -> tuple[int, int, tuple[int, ...]]:
    """Give begin, end and shape of a header's entry, all of them whole numbers."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and isinstance(shape, list)):
        raise _damaged(path, f"the entry of tensor {name!r} is incomplete")
    if any(type(number) is not int for number in (*offsets, *shape)):
        raise _damaged(path, f"the entry of tensor {name!r} is incomplete: {offsets}, {shape}")
    return offsets[0], offsets[1], tuple(shape)


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"the shard {path.name} is damaged: {how}",
        where=str(path),
        why="a safetensors header describes every byte of its file; the file was cut or changed",
        fix="download this file again and compare its size with the hub's",
    )


def read_index(hf_dir: Path) -> dict[str, str] | None:
    """Read the index of a sharded model: the file of each tensor; None without an index.

    Raises:
        CheckpointError: The index is damaged.
    """
    path = hf_dir / INDEX_FILE
    if not path.is_file():
        return None
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        if all(isinstance(file, str) and Path(file).name == file for file in weight_map.values()):
            return dict(weight_map)
        what = "weight_map names something else than files of its folder"
    except (
        *(UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError),
        RecursionError,
    ) as error:
        what = f"{type(error).__name__}: {error}"
    raise CheckpointError(
        f"the index is damaged ({what})",
        where=str(path),
        why="it says which shard holds each tensor",
        fix="download this file again",
    )


def read_hf_tensors(hf_dir: Path) -> tuple[dict[str, TensorInfo], list[str]]:
    """Read the headers of every shard of an HF folder.

    Returns:
        The tensors by name, and the shards beside an index that it does not name.

    Raises:
        CheckpointError: A shard is missing or damaged, a tensor is in two shards or in none.
    """
    index = read_index(hf_dir)
    present = sorted(path.name for path in hf_dir.glob("*.safetensors"))
    files = sorted(set(index.values())) if index is not None else present
    if not files:
        raise CheckpointError(
            "the folder holds no *.safetensors file",
            where=str(hf_dir),
            why="the weights are read from safetensors files",
            fix="download the model (download_weights.sh), or name the folder that holds it",
        )
    missing = [name for name in [*files, *_rest_of_set(files)] if not (hf_dir / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(files)} shards are missing: {shorten(missing)}",
            where=str(hf_dir),
            why="every tensor of the model must be read",
            fix="download the missing files again (download_weights.sh resumes)",
        )
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        found = read_safetensors(hf_dir / file)
        twice = sorted(tensors.keys() & found.keys())
        if twice:
            raise CheckpointError(
                f"tensors are in two shards: {shorten(twice)}",
                where=f"{tensors[twice[0]].path} and {hf_dir / file}",
                why="it is not known which of them is meant",
                fix="remove the shards that do not belong to the model",
            )
        tensors.update(found)
    if index is not None:
        _check_against_index(hf_dir, index, tensors)
    return tensors, [name for name in present if name not in files]


def _rest_of_set(files: Sequence[str]) -> list[str]:
    """Name every file of a numbered set `model-00001-of-00003` of which some are present."""
    stems = {name[: -len("00001-of-00001.safetensors")] for name in files if "-of-" in name}
    totals = {
        name[: -len(".safetensors")].rpartition("-of-")[2] for name in files if "-of-" in name
    }
    return [
        f"{stem}{number:05d}-of-{total}.safetensors"
        for stem in sorted(stems)
        for total in sorted(totals)
        if total.isdigit() and len(stems) == len(totals) == 1
        for number in range(1, int(total) + 1)
        if f"{stem}{number:05d}-of-{total}.safetensors" not in files
    ]


def _check_against_index(
    hf_dir: Path, index: Mapping[str, str], tensors: Mapping[str, TensorInfo]
) -> None:
    wrong = sorted(
        name
        for name in index.keys() | tensors.keys()
        if name not in index or name not in tensors or tensors[name].path.name != index[name]
    )
    if wrong:
        raise CheckpointError(
            f"index and shards disagree about {len(wrong)} tensors: {shorten(wrong)}",
            where=str(hf_dir / INDEX_FILE),
            why="the index and the shards must come from the same model",
            fix="download the index and the shards of one revision",
        )


def lay_out_safetensors(
    path: str, specs: Sequence[TensorSpec], *, metadata: Mapping[str, str] | None = None
) -> OutFile:
    """Lay out a safetensors file: header first, tensors in the order given.

    Slices of one stacked tensor must stand together, in order; the header names the whole.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    at = 0
    places: dict[tuple[str, str], int] = {}
    for spec in specs:
        name, index = stack_of(spec.name) or (spec.name, None)
        whole = header.setdefault(
            name,
            {
                "dtype": DTYPES[spec.dtype].safetensors,
                "shape": list(spec.shape) if index is None else [0, *spec.shape],
                "data_offsets": [at, at],
            },
        )
        if index is not None:
            whole["shape"][0] += 1
        places["", spec.name] = at
        at += spec.nbytes
        whole["data_offsets"][1] = at
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    return OutFile(
        path=path,
        size=start + at,
        specs=tuple(specs),
        offsets={key: start + offset for key, offset in places.items()},
        head=((0, struct.pack("<Q", len(text)) + text),),
    )
