"""Layers on stages, and the names Megatron gives to rank files. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

LayerList = Sequence[int] | Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one layer lives: stage, virtual stage and its number there."""

    pp_rank: int
    vpp_rank: int
    local_layer: int


@dataclass(frozen=True, slots=True)
class PipelineSplit:
    """The layers of one module over the pipeline.

    `chunks[vpp_rank][pp_rank]` is a number of layers; layers are counted through virtual stage 0
    of every stage, then virtual stage 1, and so on (MindSpeed-MM's `pipeline_num_layers`).
    """

    chunks: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, layers: LayerList) -> PipelineSplit:
        """Read `[4, 9]`, or `[[1, 1], [1, 1]]` for virtual stages.

        Raises:
            ValueError: The list is empty, ragged, mixed or holds a negative number.
        """
        if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
            raise ValueError(f"{layers!r} is no list of layers per stage")
        nested = [item for item in layers if isinstance(item, Sequence)]
        if nested and len(nested) != len(layers):
            raise ValueError(f"{layers!r} mixes numbers and lists")
        rows: Sequence[object] = nested or [layers]
        chunks = tuple(tuple(row) for row in rows if isinstance(row, Sequence))
        if len({len(row) for row in chunks}) != 1 or not chunks[0]:
            raise ValueError(f"{layers!r} has virtual stages of different lengths")
        if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for r in chunks for n in r):
            raise ValueError(f"{layers!r} holds something other than whole numbers from 0")
        return cls(chunks)

    @property
    def pp_size(self) -> int:
        """Number of pipeline stages."""
        return len(self.chunks[0])

    @property
    def vpp_size(self) -> int:
        """Number of virtual stages on each stage; 1 without interleaving."""
        return len(self.chunks)

    @property
    def total(self) -> int:
        """Number of layers over all stages."""
        return sum(map(sum, self.chunks))

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """Yield (pp_rank, vpp_rank, layers) in layer order."""
        for vpp_rank, row in enumerate(self.chunks):
            for pp_rank, count in enumerate(row):
                yield pp_rank, vpp_rank, count

    def slots(self) -> list[Slot]:
        """List the slot of every global layer, in order."""
        return [
            Slot(pp_rank, vpp_rank, local)
            for pp_rank, vpp_rank, count in self.counts()
            for local in range(count)
        ]

    def starts(self) -> list[int]:
        """List the global number of the first layer of each (virtual) stage, in layer order."""
        sizes = [count for _, _, count in self.counts()]
        return [0, *accumulate(sizes)][:-1]

    def to_lists(self) -> list[int] | list[list[int]]:
        """Give the list as MindSpeed-MM writes it: flat without virtual stages, else nested."""
        if self.vpp_size == 1:
            return list(self.chunks[0])
        return [list(row) for row in self.chunks]


def spread(base: Sequence[float], each: float, layers: int) -> tuple[int, ...]:
    """Share layers out so that the heaviest stage is as light as it can be; each has one.

    Args:
        base: What a stage carries beside layers, for every stage.
        each: What a layer weighs.
        layers: Layers in all, at least one a stage.
    """
    counts = [1] * len(base)
    for _ in range(layers - len(base)):
        totals = [rest + each * count for rest, count in zip(base, counts, strict=True)]
        counts[totals.index(min(totals))] += 1
    return tuple(counts)


def rank_folder(
    tp_rank: int, pp_rank: int, *, pp_size: int, ep_rank: int = 0, ep_size: int = 1
) -> str:
    """Name a rank's folder as Megatron does: `mp_rank_TT[_PPP][_EEE]`.

    The stage appears only with several stages, the expert rank only with several of those.
    """
    rest = [rank for rank, size in ((pp_rank, pp_size), (ep_rank, ep_size)) if size > 1]
    return rank_name(tp_rank, *rest)


def rank_name(tp_rank: int, *rest: int) -> str:
    """Spell the numbers of a rank's folder."""
    return "_".join([f"mp_rank_{tp_rank:02d}", *(f"{number:03d}" for number in rest)])
