"""The note that weights carry about the adapter merged into them, so that it is not merged again.

A checkpoint has it in its layout file, a Hugging Face folder in a file of its own; conversions
hand it on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from taskpack.errors import CheckpointError
from taskpack.weights.layout import LAYOUT_FILE
from taskpack.weights.mm_folder import MmFolder

MERGED_FILE = "taskpack_merged.json"

Merged = Mapping[str, str | float]
"""`adapter`: digest of its values, the same in every layout; `scale`: the largest one used."""


def merged_into_mm(folder: MmFolder) -> Merged:
    """Give the note of a checkpoint, empty where nothing is known of a merge."""
    return folder.record.merged if folder.record is not None else {}


def merged_into_hf(folder: Path) -> Merged:
    """Read the note of a Hugging Face folder, empty where there is none.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = folder / MERGED_FILE
    if not path.is_file():
        return {}
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return {"adapter": str(note["adapter"]), "scale": float(note["scale"])}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"the note about a merged adapter is damaged: {type(error).__name__} {error}",
            where=str(path),
            why="it keeps an adapter from being merged twice",
            fix="delete the file if you know which adapter these weights have",
        ) from None


def note_text(merged: Merged) -> str:
    """Word the note for a Hugging Face folder."""
    return json.dumps(dict(merged), indent=2) + "\n"


def refuse_second_merge(merged: Merged, digest: str, *, base: Path) -> None:
    """Refuse an adapter that the note of the base says was merged before.

    Raises:
        CheckpointError: It is the same adapter.
    """
    if merged.get("adapter") != digest:
        return
    note = base / MERGED_FILE
    raise CheckpointError(
        "this adapter is already merged into the base",
        where=str(note if note.is_file() else base / LAYOUT_FILE),
        why="merging it twice would apply it with twice the scale",
        fix="name the base weights that training started from",
    )
