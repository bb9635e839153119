"""Row orders as pure arithmetic.

A tensor parallel rank holds rows of one or several sections in some order. One primitive gives
every order: `interleave` walks the parts and takes each section's share of every part. QKV is one
part per query group, gate and up one part per rank, a fused vision qkv one part per head, and a
plain cut is a single section.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Block:
    """Rows [start, stop) of one section, moved as one run."""

    section: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [start, stop) of a logical tensor, stored from `offset` on along the sharded axis.

    An empty `tensor` is padding: rows that exist on this side only and hold zeros.
    """

    tensor: str
    start: int
    stop: int
    offset: int


@dataclass(frozen=True, slots=True)
class Move:
    """`length` rows of source `source`, from row `source_offset` there to `target_offset` here."""

    source: int
    source_offset: int
    target_offset: int
    length: int


def interleave(sections: Sequence[int], parts: int | Sequence[int]) -> list[list[Block]]:
    """List the blocks of each part: its share of every section, in section order.

    Args:
        sections: Rows of each section.
        parts: Number of equal parts, or the weight of each part (uneven heads).

    Raises:
        ValueError: A section does not divide into whole rows per weight.
    """
    weights = [1] * parts if isinstance(parts, int) else list(parts)
    total = sum(weights)
    if total <= 0:
        raise ValueError(f"the parts {parts!r} have no weight")
    for rows in sections:
        if rows % total:
            raise ValueError(f"{rows} rows do not divide into {total} equal parts")
    edges = [0, *accumulate(weights)]
    return [
        [
            Block(section, rows // total * begin, rows // total * end)
            for section, rows in enumerate(sections)
        ]
        for begin, end in pairwise(edges)
    ]


def share_out(parts: Sequence[Sequence[Block]], ranks: int) -> list[list[Block]]:
    """Give each rank its consecutive parts, joining blocks that touch.

    Raises:
        ValueError: The number of parts is not a multiple of the number of ranks.
    """
    if len(parts) % ranks:
        raise ValueError(f"{len(parts)} parts cannot be shared by {ranks} ranks")
    per_rank = len(parts) // ranks
    return [
        _joined(block for part in parts[rank * per_rank : (rank + 1) * per_rank] for block in part)
        for rank in range(ranks)
    ]


def _joined(blocks: Iterable[Block]) -> list[Block]:
    result: list[Block] = []
    for block in blocks:
        if result and (result[-1].section, result[-1].stop) == (block.section, block.start):
            result[-1] = Block(block.section, result[-1].start, block.stop)
        elif block.start < block.stop:
            result.append(block)
    return result


class Cover:
    """The rows of one logical tensor as a list of sources holds them.

    Where several sources hold the same row the first one is the row's source; the others are
    replicas, to be compared with it.
    """

    def __init__(self, held: Iterable[tuple[int, Piece]]) -> None:
        self._runs: list[tuple[int, int, int, int]] = []  # start, stop, source, offset
        self.replicas: list[tuple[int, Piece]] = []
        for source, piece in sorted(held, key=lambda item: (item[1].start, item[0])):
            if self._runs and piece.start < self._runs[-1][1]:
                self.replicas.append((source, piece))
                continue
            self._runs.append((piece.start, piece.stop, source, piece.offset))
        self._starts = [run[0] for run in self._runs]

    def gaps(self, length: int) -> list[tuple[int, int]]:
        """List the row ranges below `length` that no source holds."""
        missing, at = [], 0
        for start, stop, _, _ in self._runs:
            if start > at:
                missing.append((at, start))
            at = max(at, stop)
        if at < length:
            missing.append((at, length))
        return missing

    def moves(self, piece: Piece) -> list[Move]:
        """List the moves that fill a target piece, in target order; gaps are left out."""
        found: list[Move] = []
        at = piece.start
        index = max(bisect_right(self._starts, at) - 1, 0)
        for start, stop, source, offset in self._runs[index:]:
            if start >= piece.stop:
                break
            begin, end = max(at, start), min(piece.stop, stop)
            if begin < end:
                found.append(
                    Move(
                        source,
                        offset + begin - start,
                        piece.offset + begin - piece.start,
                        end - begin,
                    )
                )
                at = end
        return found
