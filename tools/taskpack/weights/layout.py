"""The layout of a Megatron checkpoint, and `taskpack_layout.json` beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskpack import __version__
from taskpack.errors import CheckpointError, ProfileError, TaskpackError
from taskpack.parallel import PipelineSplit, Slot, rank_folder
from taskpack.weights.rows import Entry, Module

LAYOUT_FILE = "taskpack_layout.json"
LAYOUT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model is cut over tensor and pipeline parallel ranks.

    Attributes:
        tp_size: Tensor parallel size of the text decoder.
        text: Text layers per stage.
        vision: Vision layers per stage. A list shorter than the text's repeats over the stages,
            so `[4]` puts the whole vision tower on every stage.
        vision_tp_size: Tensor parallel size of the vision tower and the projector.
        canonical: Whether modules are kept apart as HF has them (`canonical_model`).
        modules: What the checkpoint holds: both, or the vision tower alone.
        ep_size: Expert parallel size; the experts of a layer are shared out evenly.
    """

    tp_size: int
    text: PipelineSplit
    vision: PipelineSplit
    vision_tp_size: int = 0
    canonical: bool = False
    modules: tuple[Module, ...] = ("vision", "text")
    ep_size: int = 1

    def __post_init__(self) -> None:
        if self.vision_tp_size == 0:
            object.__setattr__(self, "vision_tp_size", self.tp_size)

    @property
    def pp_size(self) -> int:
        """Number of pipeline stages."""
        return self.text.pp_size

    @property
    def vpp_size(self) -> int:
        """Number of virtual stages per stage."""
        return self.text.vpp_size

    @property
    def tp_folders(self) -> int:
        """Number of tensor parallel ranks that have files of their own."""
        return max(self.tp_size, self.vision_tp_size)

    def tp_of(self, module: Module) -> int:
        """Tensor parallel size of a module."""
        return self.tp_size if module == "text" else self.vision_tp_size

    def folder(self, tp_rank: int, pp_rank: int, ep_rank: int = 0) -> str:
        """Name the folder of a rank."""
        return rank_folder(
            tp_rank, pp_rank, pp_size=self.pp_size, ep_rank=ep_rank, ep_size=self.ep_size
        )

    def split_of(self, module: Module) -> PipelineSplit:
        """Pipeline split of a module."""
        return self.text if module == "text" else self.vision

    def slots(self, entry: Entry) -> list[Slot]:
        """List every stage that holds an entry, with its layer number there."""
        split = self.split_of(entry.module)
        slot = split.slots()[entry.layer]
        repeats = self.pp_size // split.pp_size
        return [
            Slot(slot.pp_rank + repeat * split.pp_size, slot.vpp_rank, slot.local_layer)
            for repeat in range(repeats)
        ]

    def experts(self, entry: Entry) -> tuple[Sequence[int], int]:
        """Give the expert parallel ranks that hold an entry, and its expert's number there."""
        if entry.experts == 1:
            return range(self.ep_size), 0
        ep_rank, local = divmod(entry.expert, entry.experts // self.ep_size)
        return (ep_rank,), local

    def faults(
        self, dims: Mapping[str, int], *, where: str, kind: type[TaskpackError] = ProfileError
    ) -> list[TaskpackError]:
        """List everything that keeps a model of these dimensions from having this layout.

        Args:
            dims: Dimensions of the model.
            where: What gave the layout.
            kind: Class of the errors: a layout that was read from a checkpoint is its fault.
        """
        found = [
            *self._split_faults(dims, where),
            *self._tp_faults(dims, where),
            *self._ep_faults(dims, where),
        ]
        return [kind(e.what, where=e.where, why=e.why, fix=e.fix) for e in found]

    def _split_faults(self, dims: Mapping[str, int], where: str) -> list[TaskpackError]:
        found: list[TaskpackError] = []
        for module, key in (("text", "layers"), ("vision", "vision_layers")):
            split = self.split_of("text" if module == "text" else "vision")
            if split.total != dims[key]:
                found.append(
                    ProfileError(
                        f"the {module} layer list {split.to_lists()} sums to {split.total},"
                        f" but the model has {dims[key]} {module} layers",
                        where=where,
                        why="every layer must be on exactly one stage",
                        fix=f"write a list that sums to {dims[key]}, or name this model's task",
                    )
                )
        same = self.vision.pp_size == self.text.pp_size and self.vision.vpp_size == self.vpp_size
        repeats = self.vision.vpp_size == 1 == self.vpp_size
        if not same and not (repeats and self.text.pp_size % self.vision.pp_size == 0):
            found.append(
                ProfileError(
                    f"the vision list {self.vision.to_lists()} does not fit the text list"
                    f" {self.text.to_lists()}",
                    where=where,
                    why="both lists describe the same pipeline stages",
                    fix=f"give the vision list {self.text.pp_size} entries per virtual stage;"
                    " 0 means no vision layer there",
                )
            )
        return found

    def _tp_faults(self, dims: Mapping[str, int], where: str) -> list[TaskpackError]:
        found: list[TaskpackError] = []
        limits = (
            ("text", "groups", "query groups", "each rank must hold whole query groups"),
            ("text", "F", "rows of the text ffn", "each rank holds an equal share"),
            ("vision", "vision_heads", "vision heads", "each rank must hold whole heads"),
            ("vision", "VF", "rows of the vision ffn", "each rank holds an equal share"),
        )
        for module, key, noun, why in limits:
            size = self.tp_size if module == "text" else self.vision_tp_size
            if size < 1 or dims[key] % size:
                valid = [n for n in range(1, 129) if all(dims[k] % n == 0 for _, k, *_ in limits)]
                found.append(
                    ProfileError(
                        f"{module} tensor parallel size {size} does not divide the"
                        f" {dims[key]} {noun}",
                        where=where,
                        why=why,
                        fix="use " + _one_of(valid),
                    )
                )
        larger, smaller = self.tp_folders, min(self.tp_size, self.vision_tp_size)
        if smaller > 0 and larger % smaller:
            found.append(
                ProfileError(
                    f"tensor parallel sizes {self.tp_size} (text) and {self.vision_tp_size}"
                    " (vision) do not go together",
                    where=where,
                    why="the ranks of the smaller one repeat over those of the larger",
                    fix="make one a multiple of the other",
                )
            )
        return found

    def _ep_faults(self, dims: Mapping[str, int], where: str) -> list[TaskpackError]:
        experts = dims.get("experts", 1)
        if self.ep_size > 0 and experts % self.ep_size == 0:
            return []
        return [
            ProfileError(
                f"expert parallel size {self.ep_size} does not divide the {experts} experts"
                if experts > 1
                else f"expert parallel size {self.ep_size} for a model without experts",
                where=where,
                why="each rank holds an equal number of experts",
                fix="use " + _one_of([n for n in range(1, experts + 1) if experts % n == 0]),
            )
        ]


def _one_of(values: list[int]) -> str:
    shown = [str(value) for value in values]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """What `taskpack_layout.json` says: the layout, and what it belongs to.

    Attributes:
        family: Family name.
        layout: The layout.
        dtype: Element type of the weights, such as `bf16`.
        tied: Whether the output head shares the embedding.
        dims: Dimensions by name.
        release: MindSpeed-MM release it was made for, when known.
        source: Digest of the source's tensor names, types and shapes.
        lora: LoRA rank and alpha, for an adapter.
        merged: Digest of the adapter that was merged in, and the scale it was merged with.
    """

    family: str
    layout: Layout
    dtype: str
    tied: bool
    dims: Mapping[str, int]
    release: str | None = None
    source: str | None = None
    lora: Mapping[str, float] = field(default_factory=dict)
    merged: Mapping[str, str | float] = field(default_factory=dict)

    def to_text(self) -> str:
        """Write one key per line, so that a shell script can compare lines."""
        layout = self.layout
        record: dict[str, Any] = {
            "format": LAYOUT_FORMAT,
            "family": self.family,
            "release": self.release,
            "tp": layout.tp_size,
            "vision_tp": layout.vision_tp_size,
            "text_layers": layout.text.to_lists(),
            "vision_layers": layout.vision.to_lists(),
            "canonical": layout.canonical,
            "dtype": self.dtype,
            "modules": list(layout.modules),
            "tied": self.tied,
            "dims": dict(self.dims),
            "source": self.source,
            "tool": f"taskpack {__version__}",
        }
        if layout.ep_size > 1:
            record["ep"] = layout.ep_size
        if self.lora:
            record["lora"] = dict(self.lora)
        if self.merged:
            record["merged"] = dict(self.merged)
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read_layout(mm_dir: Path) -> LayoutRecord | None:
    """Read `taskpack_layout.json`, or return None where there is none.

    Raises:
        CheckpointError: The file is damaged or of a newer format.
    """
    path = mm_dir / LAYOUT_FILE
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != LAYOUT_FORMAT:
            raise CheckpointError(
                f"the layout has format {record['format']}, this taskpack reads {LAYOUT_FORMAT}",
                where=str(path),
                why="the file was written by another version",
                fix=f"install the taskpack that wrote it ({record.get('tool')})",
            )
        _check_record(record)
        return LayoutRecord(
            family=record["family"],
            layout=Layout(
                tp_size=record["tp"],
                text=PipelineSplit.parse(record["text_layers"]),
                vision=PipelineSplit.parse(record["vision_layers"]),
                vision_tp_size=record["vision_tp"],
                canonical=record["canonical"],
                modules=tuple(record["modules"]),
                ep_size=record.get("ep", 1),
            ),
            dtype=record["dtype"],
            tied=record["tied"],
            dims=record["dims"] or {},
            release=record["release"],
            source=record["source"],
            lora=record.get("lora", {}),
            merged=record.get("merged", {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"the layout file is damaged: {type(error).__name__} {error}",
            where=str(path),
            why="the layout of the rank files is read from it",
            fix="delete the file and give --task, or --tp, --llm-layers and --vit-layers",
        ) from None


def _check_record(record: Mapping[str, Any]) -> None:
    """Check the types that the parsing itself does not.

    Raises:
        ValueError: A value is of another type.
    """
    dims = record["dims"] or {}
    sizes = {key: record[key] for key in ("tp", "vision_tp")} | {"ep": record.get("ep", 1)} | dims
    for name, size in sizes.items():
        if type(size) is not int or size < (0 if "[" in name else 1):
            raise ValueError(f"{name} is {size!r}, no size")
    if not all(isinstance(record.get(key, {}), dict) for key in ("lora", "merged")):
        raise ValueError("lora or merged is no table")
    if not (isinstance(record["family"], str) and isinstance(record["dtype"], str)):
        raise ValueError("family or dtype is no text")
    if not all(isinstance(record[key], bool) for key in ("canonical", "tied")):
        raise ValueError("canonical or tied is neither true nor false")
