"""Weights against the profile, from headers alone: a Hugging Face folder and a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from taskpack.errors import TaskpackError, shorten
from taskpack.plan.findings import Check, failed
from taskpack.profile import Profile
from taskpack.profile.architecture import Architecture
from taskpack.profile.from_hf import read_architecture, read_family
from taskpack.weights.hf_folder import hf_source
from taskpack.weights.layout import LAYOUT_FILE, LayoutRecord
from taskpack.weights.mm_checkpoint import mm_source
from taskpack.weights.mm_folder import MmFolder, read_mm_folder
from taskpack.weights.task import task_layout, task_model

_HF, _MM = "HF folder", "MM folder"
_PROCESSOR = ("preprocessor_config.json", "tokenizer_config.json")
_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))


def check_hf(profile: Profile, folder: Path) -> Iterator[Check]:
    """Compare a Hugging Face folder with the model that the profile describes."""
    try:
        compared = _same_architecture(profile, folder)
        yield compared
        yield from _processor_files(folder)
        if compared.status == "fail":
            return
        if any(folder.glob("*.safetensors*")):
            side, strays = hf_source(folder, task_model(profile))
            names = f"{len(side.stored)} tensors, each of the shape the profile needs"
            yield Check(_HF, "pass", names, where=str(folder))
            if strays:
                yield Check(_HF, "note", f"the index does not name {shorten(strays)}",
                            where=str(folder), why="these files are not read",
                            fix="delete them, or download the folder again")  # fmt: skip
        else:
            yield Check(_HF, "open", "no safetensors files: only the configuration was compared",
                        where=str(folder), fix="download the weights")  # fmt: skip
    except TaskpackError as error:
        yield from failed(_HF, error)


def check_mm(profile: Profile, folder: Path) -> Iterator[Check]:
    """Compare a checkpoint with the layout and the model of the profile."""
    try:
        found = read_mm_folder(folder)
        if found.record is not None:
            unlike = list(_record_differences(profile, found, found.record))
            yield from unlike
            if unlike:
                return
        side, layout = mm_source(
            found, task_model(profile), task_layout(profile), where=f"profile of {profile.model}"
        )
    except TaskpackError as error:
        yield from failed(_MM, error)
        return
    yield Check(
        _MM,
        "pass",
        f"{len(found.ranks)} rank files with {len(side.stored)} tensors, cut for TP "
        f"{layout.tp_size} x PP {layout.pp_size} as the profile is",
        where=f"{folder} ({found.iteration})",
    )


def _same_architecture(profile: Profile, folder: Path) -> Check:
    where = f"{folder / 'config.json'} and the profile's architecture"
    family = read_family(folder).name
    if family != profile.family:
        return _other_model(f"model_type {family} (profile: {profile.family})", where)
    unlike = _differences(read_architecture(folder), profile.architecture)
    if unlike:
        return _other_model(shorten(unlike, 6), where)
    return Check(_HF, "pass", "config.json has the profile's architecture", where=str(folder))


def _differences(have: Architecture, want: Architecture) -> list[str]:
    return [
        f"{part}.{name} {_show(getattr(mine, name))} (profile: {_show(getattr(theirs, name))})"
        for part, mine, theirs in (
            ("text", have.text, want.text),
            ("vision", have.vision, want.vision),
        )
        for name in type(mine).model_fields
        if getattr(mine, name) != getattr(theirs, name)
    ]


def _show(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def _other_model(unlike: str, where: str) -> Check:
    return Check(
        _HF,
        "fail",
        f"the folder holds another model: {unlike}",
        where=where,
        why="converted weights would not fit the rendered model.json",
        fix="name the folder of this task's model, or make a task for that one: "
        "taskpack profile from-hf DIR --name NAME",
    )


def _processor_files(folder: Path) -> Iterator[Check]:
    missing = [name for name in _PROCESSOR if not (folder / name).is_file()]
    if not any(all((folder / name).is_file() for name in names) for names in _TOKENIZERS):
        missing.append(" and ".join(_TOKENIZERS[-1]))
    if missing:
        yield Check(
            _HF,
            "fail",
            f"the folder lacks {', '.join(missing)}",
            where=str(folder),
            why="the trainer makes its tokenizer and image processor from this folder",
            fix="download the whole folder, not the weights alone",
        )


def _record_differences(profile: Profile, found: MmFolder, record: LayoutRecord) -> Iterator[Check]:
    model, layout = task_model(profile), task_layout(profile)
    own, where = record.layout, f"{found.root / LAYOUT_FILE} and the profile"
    pairs: Mapping[str, tuple[Any, Any]] = {
        "family": (record.family, profile.family),
        "tied": (record.tied, model.tied),
        **{
            f"dimension {name}": (record.dims.get(name), size)
            for name, size in model.dims.items()
            if record.dims
        },
        "tp": (own.tp_size, layout.tp_size),
        "text_layers": (own.text.to_lists(), layout.text.to_lists()),
        "vision_layers": (own.vision.to_lists(), layout.vision.to_lists()),
        "canonical": (own.canonical, layout.canonical),
    }
    unlike = [f"{key} {a} (profile: {b})" for key, (a, b) in pairs.items() if a != b]
    if unlike:
        yield Check(
            _MM,
            "fail",
            f"the checkpoint is of another layout or model: {shorten(unlike, 6)}",
            where=where,
            why="the trainer loads what fits by name and leaves the rest random, without an error",
            fix="convert the weights with this profile, or resplit: taskpack convert resplit",
        )
