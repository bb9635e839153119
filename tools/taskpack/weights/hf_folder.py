"""A Hugging Face folder as a side: its tensors, shards and side files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.account import ACCOUNT_FILE, shard_account
from taskpack.weights.dtypes import DTYPES
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.layout import LAYOUT_FILE, Layout
from taskpack.weights.merge_record import MERGED_FILE, Merged, note_text
from taskpack.weights.out_file import TensorSpec
from taskpack.weights.plan import Address, check_side
from taskpack.weights.rows import Entry, Naming, entries, naming_of, spell
from taskpack.weights.run import Output, Side
from taskpack.weights.safetensors_file import (
    INDEX_FILE,
    lay_out_safetensors,
    read_hf_tensors,
    read_index,
    read_safetensors,
)
from taskpack.weights.sides import Stored, by_file, hf_side
from taskpack.weights.tensors import TensorInfo, in_slices, stack_of

VISION_ONLY = "only the vision tower was asked for"


def hf_source(
    hf_dir: Path, config: HfConfig, layout: Layout | None = None
) -> tuple[Side, list[str]]:
    """Read the places of all tensors of a Hugging Face folder.

    Returns:
        The side, and stray shards that the index does not name.
    """
    tensors, strays = read_hf_tensors(hf_dir)
    naming = naming_of(config.family, tensors)
    expanded = entries(config.family, config.dims, canonical=True, tied=config.tied)
    tensors = in_slices(tensors, _names(expanded, naming))
    infos: dict[Address, TensorInfo] = {
        (info.path.name, "", name): info for name, info in tensors.items()
    }
    files = {name: info.path.name for name, info in tensors.items()}
    stored = hf_side(expanded, files, naming, upright=_are_upright(tensors, expanded, naming))
    check_side(stored, infos, where=str(hf_dir), dropped={})
    dropped = {}
    if layout is not None and "text" not in layout.modules:
        vision = {t for entry in expanded if entry.module == "vision" for t in entry.tensors}
        dropped = {item.name: VISION_ONLY for item in stored if item.pieces[0].tensor not in vision}
    return Side(stored, infos, dropped, str(hf_dir)), strays


def hf_output(
    hf_dir: Path,
    hf_ref: Path,
    config: HfConfig,
    *,
    dtype: str,
    shard_limit: int | None = None,
    merged: Merged = MappingProxyType({}),
) -> tuple[Output, list[Stored]]:
    """Lay out the shards of a Hugging Face folder as the reference has them.

    Args:
        hf_dir: Folder to make.
        hf_ref: Folder whose names, shards and side files it takes over.
        config: The model.
        dtype: Element type.
        shard_limit: Bytes of tensors above which a file is cut; then all are cut anew.
        merged: The adapter that the weights hold, if any.

    Raises:
        CheckpointError: The reference lists other tensors than the model has.
    """
    files, naming = _reference_files(hf_ref, config)
    texts = {MERGED_FILE: note_text(merged)} if merged else {}
    if read_hf_config(hf_ref).tied and not config.tied:
        texts["config.json"] = _untied_config(hf_ref)
        head, embedding = (spell(name, naming) for name in head_and_embedding(config))
        files.setdefault(head, files.get(embedding, "model.safetensors"))
    expanded = entries(config.family, config.dims, canonical=True, tied=config.tied)
    for name in _names(expanded, naming):
        if (stack := stack_of(name)) is not None and stack[0] in files:
            files[name] = files[stack[0]]
    files = {name: file for name, file in files.items() if f"{name}[0]" not in files}
    stored = hf_side(
        expanded,
        files,
        naming,
        single="model.safetensors" if not files else None,
        upright=_are_upright(_reference_tensors(hf_ref, expanded, naming, files), expanded, naming),
    )
    _refuse_other_names(stored, files, hf_ref)
    if shard_limit is not None:
        stored = _sharded(stored, DTYPES[dtype].itemsize, shard_limit)
    outs = {
        file: lay_out_safetensors(
            file,
            [TensorSpec("", s.name, dtype, s.shape) for s in sorted(items, key=_in_order)],
        )
        for file, items in sorted(by_file(stored).items())
    }
    if len(outs) > 1 or (hf_ref / INDEX_FILE).is_file():
        texts[INDEX_FILE] = _index_text(stored, DTYPES[dtype].itemsize)
    output = Output(
        target=hf_dir,
        outs=outs,
        texts=texts,
        copies=side_files(hf_ref),
        account_of=shard_account,
    )
    return output, stored


def _index_text(stored: Sequence[Stored], itemsize: int) -> str:
    index = {
        "metadata": {"total_size": sum(prod(item.shape) for item in stored) * itemsize},
        "weight_map": {_in_order(item)[0]: item.file for item in sorted(stored, key=_in_order)},
    }
    return json.dumps(index, indent=2) + "\n"


def _refuse_other_names(stored: Sequence[Stored], files: Mapping[str, str], hf_ref: Path) -> None:
    unplaced = [item.name for item in stored if not item.file]
    if unplaced or len(files) > len(stored):
        known = {item.name for item in stored}
        shown = unplaced or [name for name in files if name not in known]
        raise CheckpointError(
            f"the reference folder lists other tensors than the model: {shorten(shown)}",
            where=str(hf_ref),
            why="its index decides names and shards of the output",
            fix="name the folder that the checkpoint was converted from",
        )


def _sharded(stored: list[Stored], itemsize: int, limit: int) -> list[Stored]:
    """Share tensors out to numbered shards anew where a file is larger than the limit."""
    sizes: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for item in stored:
        sizes[item.file] += prod(item.shape) * itemsize
        whole[_in_order(item)[0]] += prod(item.shape) * itemsize
    if max(sizes.values()) <= limit:
        return stored
    shard_of: dict[str, int] = {}
    number, filled = 1, 0
    for name, nbytes in whole.items():
        if filled and filled + nbytes > limit:
            number, filled = number + 1, 0
        shard_of[name] = number
        filled += nbytes
    files = {n: f"model-{n:05d}-of-{number:05d}.safetensors" for n in shard_of.values()}
    if number == 1:
        files = {1: "model.safetensors"}
    return [replace(item, file=files[shard_of[_in_order(item)[0]]]) for item in stored]


def _names(expanded: Sequence[Entry], naming: Naming) -> list[str]:
    return [spell(tensor, naming) for entry in expanded for tensor in entry.tensors]


def _are_upright(
    tensors: Mapping[str, TensorInfo], expanded: Sequence[Entry], naming: Naming
) -> bool:
    """Tell whether stacked experts are stored `[out, in]`.

    transformers 5 saves them so; files of transformers 4, and those of the hub, are `[in, out]`.
    """
    return any(
        tensors[name].shape == shape != shape[::-1]
        for entry in expanded
        if entry.transposed
        for tensor, shape in entry.tensors.items()
        if (name := spell(tensor, naming)) in tensors
    )


def _reference_tensors(
    hf_ref: Path, expanded: Sequence[Entry], naming: Naming, files: Mapping[str, str]
) -> dict[str, TensorInfo]:
    """Read the headers of the reference's shards that hold experts, as far as they are there."""
    turned = [entry for entry in expanded if entry.transposed]
    names = _names(turned, naming)
    shards = {files[name] for name in names if name in files and (hf_ref / files[name]).is_file()}
    found: dict[str, TensorInfo] = {}
    for shard in sorted(shards):
        found |= in_slices(read_safetensors(hf_ref / shard), names)
    return found


def _in_order(stored: Stored) -> tuple[str, int]:
    return stack_of(stored.name) or (stored.name, 0)


def head_and_embedding(config: HfConfig) -> tuple[str, str]:
    """Name the head's weight and the one it may share, as the table spells them."""
    (row,) = (row for row in config.family.fused if row.tied_to)
    return f"{row.hf[0]}.weight", f"{row.tied_to}.weight"


def _untied_config(hf_ref: Path) -> str:
    """Give config.json with `tie_word_embeddings` off wherever it stands."""
    config = json.loads((hf_ref / "config.json").read_text(encoding="utf-8"))
    config["tie_word_embeddings"] = False
    text = config.get("text_config")
    if isinstance(text, dict) and "tie_word_embeddings" in text:
        text["tie_word_embeddings"] = False
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _reference_files(hf_ref: Path, config: HfConfig) -> tuple[dict[str, str], Naming]:
    """Give the file of each tensor of a reference folder, by its index or its one shard."""
    files = read_index(hf_ref)
    if files is None:
        shards = sorted(hf_ref.glob("*.safetensors"))
        files = {name: shard.name for shard in shards for name in read_safetensors(shard)}
    return files, naming_of(config.family, files)


_OURS = (INDEX_FILE, LAYOUT_FILE, MERGED_FILE)
_OTHER_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")


def side_files(hf_ref: Path) -> dict[str, Path]:
    """List what belongs to a model besides its weights: config, tokenizer, processor, texts."""
    found = {}
    for path in sorted(hf_ref.rglob("*")):
        relative = path.relative_to(hf_ref)
        hidden_folder = any(part in (".git", ".cache") for part in relative.parts[:-1])
        ours = path.name in _OURS or path.name.endswith(ACCOUNT_FILE)
        if path.is_file() and not hidden_folder and not ours and path.suffix not in _OTHER_WEIGHTS:
            found[str(relative)] = path
    return found
