"""The two sides of every conversion: where each stored tensor keeps which logical rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from taskpack.weights.blocks import Piece, interleave, share_out
from taskpack.weights.layout import Layout
from taskpack.weights.rows import Entry, Naming, spell


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a checkpoint and the logical rows in it.

    Attributes:
        file: Rank folder or safetensors file that holds it.
        key: `model`, `model0`, ... inside a rank file; empty in a safetensors file.
        name: Its name there.
        shape: Its shape.
        axis: The axis the pieces lie along.
        pieces: Its rows along the axis, in order, without gap or overlap.
        transposed: Whether its two axes are swapped against the logical tensor's.
    """

    file: str
    key: str
    name: str
    shape: tuple[int, ...]
    axis: int
    pieces: tuple[Piece, ...]
    transposed: bool = False

    @property
    def address(self) -> tuple[str, str, str]:
        """What identifies it in the checkpoint."""
        return self.file, self.key, self.name


def hf_side(
    expanded: Sequence[Entry],
    files: Mapping[str, str],
    naming: Naming,
    *,
    single: str | None = None,
    every_spelling: bool = False,
    upright: bool = False,
) -> list[Stored]:
    """List the HF tensors of a model.

    Args:
        expanded: Entries of the family's table.
        files: File of each HF tensor that exists or shall be written.
        naming: Spelling of the names.
        single: File for a tensor that `files` does not list; without it such a tensor is listed
            under an empty file name, so that it is reported as missing.
        every_spelling: List a tensor under all its names, not only under those that `files` has.
        upright: Take tensors that the table calls transposed as they are.
    """
    side: dict[str, Stored] = {}
    for entry in expanded:
        for tensor, shape in entry.tensors.items():
            for index, alias in enumerate(entry.spelled[tensor]):
                name = spell(alias, naming)
                if index and not every_spelling and name not in files:
                    continue
                axis = entry.axis or 0
                piece = Piece(tensor, 0, shape[axis], 0)
                file = files.get(name, single or "")
                if entry.transposed and not upright:
                    side[name] = Stored(file, "", name, shape[::-1], 1 - axis, (piece,), True)
                else:
                    side[name] = Stored(file, "", name, shape, axis, (piece,))
    return list(side.values())


def mm_side(
    expanded: Sequence[Entry], layout: Layout, *, padded_vocab: int = 0, tied: bool = False
) -> list[Stored]:
    """List the tensors of every rank file of a layout.

    Args:
        expanded: Entries of the family's table of the layout's structure.
        layout: The layout.
        padded_vocab: Rows of the embedding and the head with padding; 0 leaves them as they are.
        tied: Whether the head shares the embedding; with one stage it then has no tensor.
    """
    return [
        stored
        for entry in expanded
        if entry.module in layout.modules and not _lives_in_embedding(entry, layout, tied=tied)
        for stored in _entry_side(entry, layout, padded_vocab)
    ]


def rank_files(layout: Layout) -> list[str]:
    """List the rank folders of a layout: experts within stages within tensor parallel ranks."""
    return [
        layout.folder(tp_rank, pp_rank, ep_rank)
        for tp_rank in range(layout.tp_folders)
        for pp_rank in range(layout.pp_size)
        for ep_rank in range(layout.ep_size)
    ]


def rank_folders(
    layout: Layout, ranks: Iterable[int], *, world_size: int | None = None
) -> frozenset[str]:
    """Name the rank folders that global ranks load, in Megatron's order.

    That is tp, cp, dp, pp for weights in general and tp, ep, dp, pp for experts, whose grid has no
    context parallel axis; so they need no more NPUs.

    Args:
        layout: The layout.
        ranks: Global ranks.
        world_size: NPUs of the cluster; by default one copy of the model.

    Raises:
        ValueError: A rank lies outside the cluster, or the cluster holds no whole copies.
    """
    one_copy = layout.tp_folders * layout.pp_size * layout.ep_size
    if one_copy < 1:
        raise ValueError("a parallel size is below 1")
    world_size = one_copy if world_size is None else world_size
    if world_size < 1 or world_size % one_copy:
        raise ValueError(f"{world_size} ranks hold no whole number of copies of {one_copy}")
    folders = set()
    for rank in ranks:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is none of the {world_size} ranks")
        pp_rank = rank // (world_size // layout.pp_size)
        ep_rank = rank // layout.tp_folders % layout.ep_size
        folders.add(layout.folder(rank % layout.tp_folders, pp_rank, ep_rank))
    return frozenset(folders)


def rank_grid(
    layout: Layout,
    *,
    tp_ranks: Collection[int] | None = None,
    pp_ranks: Collection[int] | None = None,
) -> frozenset[str]:
    """Name the rank folders of some tensor parallel ranks or stages.

    Raises:
        ValueError: The layout has no such rank.
    """
    chosen = []
    for wanted, size in ((tp_ranks, layout.tp_folders), (pp_ranks, layout.pp_size)):
        ranks = range(size) if wanted is None else sorted(wanted)
        if any(rank >= size for rank in ranks):
            raise ValueError(f"rank {max(ranks)} is none of {size} ranks")
        chosen.append(ranks)
    return frozenset(
        layout.folder(tp_rank, pp_rank, ep_rank)
        for tp_rank in chosen[0]
        for pp_rank in chosen[1]
        for ep_rank in range(layout.ep_size)
    )


def model_keys(layout: Layout) -> list[str]:
    """List the state dicts of a rank file: `model`, or one per virtual stage."""
    if layout.vpp_size == 1:
        return ["model"]
    return [f"model{vpp_rank}" for vpp_rank in range(layout.vpp_size)]


def _lives_in_embedding(entry: Entry, layout: Layout, *, tied: bool) -> bool:
    is_head = any(len(names) > 1 and entry.stage == "last" for names in entry.spelled.values())
    return tied and is_head and layout.pp_size == 1


def _entry_side(entry: Entry, layout: Layout, padded_vocab: int) -> Iterator[Stored]:
    tp_size = layout.tp_of(entry.module)
    pad = 0
    if padded_vocab and entry.stage != "layer" and entry.module == "text" and entry.axis == 0:
        pad = padded_vocab - entry.rows
    per_rank = _pieces(entry, tp_size, pad)
    shape = entry.shape
    keys = model_keys(layout)
    axis = entry.axis or 0
    ep_ranks, expert = layout.experts(entry)
    for slot, tp_rank, ep_rank in product(layout.slots(entry), range(layout.tp_folders), ep_ranks):
        pieces = per_rank[tp_rank % tp_size]
        rows = sum(piece.stop - piece.start for piece in pieces)
        yield Stored(
            file=layout.folder(tp_rank, slot.pp_rank, ep_rank),
            key=keys[slot.vpp_rank],
            name=entry.mm.format(layer=slot.local_layer, expert=expert),
            shape=(*shape[:axis], rows, *shape[axis + 1 :]),
            axis=axis,
            pieces=pieces,
        )


def _pieces(entry: Entry, tp_size: int, pad: int) -> list[tuple[Piece, ...]]:
    sections = [section.rows for section in entry.sections]
    if entry.axis is None:
        ranks = share_out(interleave(sections, 1), 1) * tp_size
    elif pad:
        ranks = share_out(interleave([sections[0] + pad], tp_size), tp_size)
    else:
        ranks = share_out(interleave(sections, entry.parts or tp_size), tp_size)
    result = []
    for blocks in ranks:
        offset, pieces = 0, []
        for block in blocks:
            section = entry.sections[block.section]
            stop = min(block.stop, section.rows)
            if block.start < stop:
                pieces.append(
                    Piece(section.tensor, section.start + block.start, section.start + stop, offset)
                )
            padding = block.stop - max(block.start, section.rows)
            if padding > 0:
                pieces.append(Piece("", 0, padding, offset + max(stop - block.start, 0)))
            offset += block.stop - block.start
        result.append(tuple(pieces))
    return result


def by_file(side: Collection[Stored]) -> dict[str, list[Stored]]:
    """Group a side by file, keeping its order."""
    grouped: dict[str, list[Stored]] = {}
    for stored in side:
        grouped.setdefault(stored.file, []).append(stored)
    return grouped
