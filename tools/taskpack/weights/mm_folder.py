"""Find the rank files of a Megatron checkpoint, and the layout they have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path

from taskpack.errors import CheckpointError, shorten
from taskpack.parallel import PipelineSplit, rank_folder, rank_name
from taskpack.weights.folders import RANK_FILE, TRACKER_FILE, iteration_name
from taskpack.weights.layout import LAYOUT_FILE, Layout, LayoutRecord, read_layout
from taskpack.weights.plan import Address
from taskpack.weights.pt_read import RankFile, read_rank_file
from taskpack.weights.sides import rank_files
from taskpack.weights.tensors import TensorInfo

_RANK_FOLDER = re.compile(r"mp_rank_(\d{2,})((?:_\d{3,}){0,2})")
_MAX_DIGITS = 12
_LAYER = re.compile(r"\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class MmFolder:
    """A checkpoint folder with the rank files of one iteration.

    Attributes:
        root: The folder that holds the tracker.
        iteration: `release`, or the iteration as a number in text.
        ranks: The rank files by folder name.
        record: What `taskpack_layout.json` says, if there is one.
    """

    root: Path
    iteration: str
    ranks: Mapping[str, RankFile]
    record: LayoutRecord | None

    @property
    def infos(self) -> dict[Address, TensorInfo]:
        """Every tensor by rank folder, state dict and name."""
        return {
            (folder, key, name): info
            for folder, rank in self.ranks.items()
            for key, state in rank.models.items()
            for name, info in state.items()
        }

    @property
    def without_tensor(self) -> list[str]:
        """Entries of the state dicts that hold no tensor."""
        return [
            f"{folder}:{name}"
            for folder, rank in self.ranks.items()
            for name in rank.without_tensor
        ]


def iteration_folder(root: Path, iteration: str) -> tuple[str, Path]:
    """Find the folder of an iteration: `latest` by the tracker, `release`, or a number.

    Raises:
        CheckpointError: The folder, the tracker or the iteration is missing.
    """
    if not root.is_dir():
        raise CheckpointError(
            f"there is no checkpoint folder {root}",
            where=str(root),
            why="the rank files are read from it",
            fix="check the path; convert_hf_to_mm.sh makes base weights, training a save folder",
        )
    present = sorted(
        path.name for path in root.iterdir() if path.name == "release" or _is_iteration(path.name)
    )
    chosen = iteration
    if iteration == "latest":
        chosen = _read_tracker(root, present)
    folder = root / iteration_name(chosen)
    if not folder.is_dir():
        named_by = "the tracker names" if iteration == "latest" else "the iteration asked for is"
        raise CheckpointError(
            f"{named_by} {chosen!r}, but there is no folder {folder.name}",
            where=str(root / TRACKER_FILE if iteration == "latest" else root),
            why="the weights are in the folder of their iteration",
            fix=f"choose with --iteration: {shorten(present) or 'the folder holds none'}",
        )
    return chosen, folder


def _is_iteration(name: str) -> bool:
    return name.startswith("iter_") and name[5:].isdigit()


def _read_tracker(root: Path, present: list[str]) -> str:
    path = root / TRACKER_FILE
    if not path.is_file():
        has_hf = any(root.glob("*.safetensors"))
        raise CheckpointError(
            f"the folder has no {TRACKER_FILE}",
            where=str(root),
            why="it holds Hugging Face weights"
            if has_hf
            else "the tracker names the iteration to read",
            fix="convert it first: taskpack convert hf-to-mm"
            if has_hf
            else f"choose with --iteration: {shorten(present) or 'the folder holds none'}",
        )
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if text == "release" or (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return text
    raise CheckpointError(
        f"the tracker says {text[:40]!r}",
        where=str(path),
        why="it holds `release` or the number of an iteration",
        fix=f"choose with --iteration: {shorten(present) or 'the folder holds none'}",
    )


def read_mm_folder(root: Path, *, iteration: str = "latest") -> MmFolder:
    """Read the places of all tensors of a checkpoint; no tensor is read.

    Raises:
        CheckpointError: Rank folders are missing or too many, or a rank file is damaged.
    """
    chosen, folder = iteration_folder(root, iteration)
    ranks: dict[str, RankFile] = {}
    for path in sorted(folder.iterdir()):
        if _RANK_FOLDER.fullmatch(path.name):
            ranks[path.name] = read_rank_file(path / RANK_FILE)
        elif path.name.startswith("mp_rank_"):
            raise CheckpointError(
                f"the rank folder {path.name} has another form than mp_rank_TT[_PPP][_EEE]",
                where=str(path),
                why="its numbers are the tensor, pipeline and expert parallel rank",
                fix="name a checkpoint as Megatron saves it",
            )
    _check_grid(folder, ranks)
    return MmFolder(root, chosen, ranks, read_layout(root))


def _grid(names: Iterable[str]) -> tuple[int, ...]:
    """Count the ranks in each position of the names of rank folders."""
    numbers = [tuple(map(int, name.split("_")[2:])) for name in names]
    return tuple(1 + max(column) for column in zip_longest(*numbers, fillvalue=0))


def _check_grid(folder: Path, present: Collection[str]) -> None:
    # a number after the first is written only where it counts to more than one
    sizes = tuple(max(size, 1 + (place > 0)) for place, size in enumerate(_grid(present)))
    expected = {rank_name(*numbers) for numbers in (product(*map(range, sizes)) if sizes else ())}
    if present and set(present) == expected:
        return
    missing, extra = sorted(expected - set(present)), sorted(set(present) - expected)
    what = "there are no rank folders" if not present else "the rank folders form no full grid"
    if missing:
        what += f"; missing: {shorten(missing)}"
    if extra:
        what += f"; too many: {shorten(extra)}"
    raise CheckpointError(
        what,
        where=str(folder),
        why="each combination of tensor, pipeline and expert parallel rank has one folder",
        fix="copy the missing rank folders here, or remove those of another layout",
    )


def check_ranks(folder: MmFolder, layout: Layout) -> None:
    """Refuse rank folders that are not those of a layout.

    Raises:
        CheckpointError: They are of another layout.
    """
    if set(rank_files(layout)) == set(folder.ranks):
        return
    have = infer_layout(folder)
    shown, wanted = (
        f"TP {one.tp_folders} x PP {one.pp_size}" + (f" x EP {one.ep_size}" if with_experts else "")
        for with_experts in [have.ep_size + layout.ep_size > 2]
        for one in (have, layout)
    )
    raise CheckpointError(
        f"the checkpoint is cut for {shown}, not for {wanted}",
        where=str(folder.root),
        why="the layout asked for and the rank folders differ",
        fix="give the layout that the checkpoint has; `taskpack inspect` shows it",
    )


def infer_layout(folder: MmFolder) -> Layout:
    """Tell the layout of a checkpoint that has no `taskpack_layout.json`.

    TP, PP and EP come from the rank folders, the layers from the tensors, the virtual stages from
    the state dicts and the structure from the names. A second number is the stage, unless every
    folder holds both ends of the model.
    """
    tp_size, pp_size, ep_size = (*_grid(folder.ranks), 1, 1)[:3]
    if ep_size == 1 < pp_size and all(map(_holds_both_ends, folder.ranks.values())):
        pp_size, ep_size = 1, pp_size
    stages = [
        folder.ranks[rank_folder(0, pp_rank, pp_size=pp_size, ep_size=ep_size)]
        for pp_rank in range(pp_size)
    ]
    keys = sorted(stages[0].models, key=lambda key: int(key[5:] or 0))
    split = {
        module: PipelineSplit(
            tuple(
                tuple(_layers(stage.models.get(key, {}), prefix) for stage in stages)
                for key in keys
            )
        )
        for module, prefix in (("text", "text_decoder."), ("vision", "image_encoder."))
    }
    names = {name for stage in stages for state in stage.models.values() for name in state}
    return Layout(
        tp_size=tp_size,
        text=split["text"],
        vision=split["vision"],
        canonical=any(".self_attention.q_proj." in name for name in names),
        ep_size=ep_size,
    )


def _holds_both_ends(rank: RankFile) -> bool:
    names = " ".join(name for state in rank.models.values() for name in state)
    return ".word_embeddings." in names and ".final_layernorm." in names


def _layers(state: Mapping[str, object], prefix: str) -> int:
    found = [_LAYER.search(name) for name in state if name.startswith(prefix)]
    return len({match[1] for match in found if match})


def resolve_layout(folder: MmFolder, wanted: Layout | None, *, where: str) -> Layout:
    """Decide the layout of a checkpoint: its own record, else what it shows.

    Args:
        folder: The checkpoint.
        wanted: The layout that the profile or the flags give.
        where: What gave it.

    Raises:
        CheckpointError: The checkpoint has another layout than the one wanted.
    """
    own = folder.record.layout if folder.record is not None else infer_layout(folder)
    if wanted is None:
        check_ranks(folder, own)
        return own
    check_ranks(folder, wanted)
    names: tuple[str, ...] = ("tp_size", "vision_tp_size", "ep_size", "text", "vision", "canonical")
    if folder.record is None:
        names = ("text", "vision")  # an adapter or a frozen tower shows less than it has
    for name in names:
        have, want = getattr(own, name), getattr(wanted, name)
        shown = [v.to_lists() if isinstance(v, PipelineSplit) else v for v in (have, want)]
        if have != want and not (folder.record is None and not any(map(sum, have.chunks))):
            raise CheckpointError(
                f"the checkpoint has {name.removesuffix('_size')} {shown[0]}, not {shown[1]}",
                where=f"{folder.root / LAYOUT_FILE if folder.record else folder.root} and {where}",
                why="layers or heads would land in the wrong place without an error",
                fix="use the profile it was made with, or resplit the checkpoint",
            )
    return wanted
