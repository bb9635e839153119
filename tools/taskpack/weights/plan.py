"""From two sides to a work list, and the law that every byte is accounted for.

A job fills one target tensor, or, where input features are cut (axis 1), every target tensor of
one logical tensor together, so that its rows are read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from taskpack.errors import CheckpointError, TaskpackError, shorten
from taskpack.weights.blocks import Cover, Move, Piece
from taskpack.weights.dtypes import FLOATS
from taskpack.weights.rows import pattern_of
from taskpack.weights.sides import Stored
from taskpack.weights.tensors import TensorInfo

Address = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor to fill and the moves that do it; rows without a move are zero padding."""

    stored: Stored
    axis: int
    moves: tuple[Move, ...]

    @property
    def width(self) -> int:
        """Length along the axis."""
        return self.stored.shape[self.axis] if self.stored.shape else 1


@dataclass(frozen=True, slots=True)
class Job:
    """Targets that are filled together from the same sources.

    `turned` says that the sources store rows where the targets store columns.
    """

    targets: tuple[Target, ...]
    sources: tuple[TensorInfo, ...]
    axis: int
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """Two places that hold the same rows and must be equal.

    `axis` is that of the second place; the first has the other one where it is `turned`.
    """

    tensor: str
    axis: int
    first: TensorInfo
    first_offset: int
    second: TensorInfo
    second_offset: int
    length: int
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole work: jobs, replicas to compare, and what was left of the source."""

    jobs: tuple[Job, ...]
    replicas: tuple[Replica, ...]
    used: frozenset[Address]


def make_plan(
    targets: Sequence[Stored], sources: Sequence[Stored], infos: Mapping[Address, TensorInfo]
) -> Plan:
    """Intersect two sides.

    Args:
        targets: The tensors to fill.
        sources: The tensors that exist.
        infos: Where the bytes of each source tensor are.

    Raises:
        CheckpointError: Rows that a target needs are in no source.
    """
    covers = covers_of(sources)
    filled = [_target(stored, covers) for stored in targets]
    return Plan(
        jobs=tuple(_jobs(filled, sources, infos)),
        replicas=tuple(_replicas(covers, sources, infos)),
        used=frozenset(sources[move.source].address for target in filled for move in target.moves),
    )


def check_law(
    targets: Sequence[Stored], sources: Sequence[Stored], dropped: Collection[str]
) -> None:
    """Check that the targets hold every row of the source, and each of their rows once.

    Args:
        targets: The tensors to fill.
        sources: The tensors that exist.
        dropped: Names of source tensors that are left out.

    Raises:
        AssertionError: A row would be lost, or written twice; a fault of ours, never of the input.
    """
    for stored in targets:
        at = 0
        for piece in stored.pieces:
            assert piece.offset == at, f"{stored.name}: row {at} is not written once"
            at += piece.stop - piece.start
        assert at == (stored.shape[stored.axis] if stored.shape else 1), stored.name
    covers = covers_of(targets)
    for stored in sources:
        if stored.name in dropped:
            continue
        for piece in stored.pieces:
            if piece.tensor:
                gaps = covers[piece.tensor].gaps(piece.stop) if piece.tensor in covers else []
                assert piece.tensor in covers and not gaps, f"{piece.tensor}: rows {gaps} are lost"


def covers_of(side: Sequence[Stored]) -> dict[str, Cover]:
    """Index a side by logical tensor."""
    held: dict[str, list[tuple[int, Piece]]] = defaultdict(list)
    for index, stored in enumerate(side):
        for piece in stored.pieces:
            if piece.tensor:
                held[piece.tensor].append((index, piece))
    return {tensor: Cover(pieces) for tensor, pieces in held.items()}


def _target(stored: Stored, covers: Mapping[str, Cover]) -> Target:
    moves: list[Move] = []
    for piece in stored.pieces:
        if not piece.tensor:
            continue
        found = covers[piece.tensor].moves(piece) if piece.tensor in covers else []
        if sum(move.length for move in found) != piece.stop - piece.start:
            raise CheckpointError(
                f"rows {piece.start} to {piece.stop} of {piece.tensor} are in no source tensor",
                where=f"{stored.file} {stored.name}",
                why="every row of the target must come from somewhere",
                fix="use a complete checkpoint of the same model",
            )
        moves.extend(found)
    return Target(stored, stored.axis, tuple(moves))


def _jobs(
    filled: Iterable[Target], sources: Sequence[Stored], infos: Mapping[Address, TensorInfo]
) -> Iterable[Job]:
    bands: dict[str, list[Target]] = defaultdict(list)
    for target in filled:
        if _is_turned(target, sources):
            yield replace(_job([target], sources, infos, whole=False), turned=True)
        elif target.axis == 0 or _is_whole(target, sources):
            yield _job([replace(target, axis=0)], sources, infos, whole=target.axis != 0)
        else:
            bands[target.stored.pieces[0].tensor].append(target)
    for band in bands.values():
        yield _job(band, sources, infos, whole=False)


def _is_turned(target: Target, sources: Sequence[Stored]) -> bool:
    """Tell whether the sources of a target store it with swapped axes, as all or none do."""
    return any(
        sources[move.source].transposed != target.stored.transposed for move in target.moves[:1]
    )


def _is_whole(target: Target, sources: Sequence[Stored]) -> bool:
    """Tell whether a target is one source tensor unchanged, whatever the axis."""
    if len(target.moves) != 1:
        return False
    return sources[target.moves[0].source].shape == target.stored.shape


def _job(
    targets: Sequence[Target],
    sources: Sequence[Stored],
    infos: Mapping[Address, TensorInfo],
    *,
    whole: bool,
) -> Job:
    numbers: dict[int, int] = {}
    renumbered = []
    for target in targets:
        moves = [
            replace(move, source=numbers.setdefault(move.source, len(numbers)))
            for move in target.moves
        ]
        if whole:
            moves = [Move(moves[0].source, 0, 0, target.stored.shape[0])]
        renumbered.append(replace(target, moves=tuple(moves)))
    used = tuple(infos[sources[number].address] for number in numbers)
    return Job(tuple(renumbered), used, targets[0].axis)


def _replicas(
    covers: Mapping[str, Cover], sources: Sequence[Stored], infos: Mapping[Address, TensorInfo]
) -> Iterable[Replica]:
    for tensor, cover in covers.items():
        for index, piece in cover.replicas:
            second = sources[index]
            for move in cover.moves(piece):
                first = sources[move.source]
                yield Replica(
                    tensor=tensor,
                    axis=second.axis,
                    first=infos[first.address],
                    first_offset=move.source_offset,
                    second=infos[second.address],
                    second_offset=move.target_offset,
                    length=move.length,
                )


def check_side(
    expected: Sequence[Stored],
    infos: Mapping[Address, TensorInfo],
    *,
    where: str,
    dropped: Mapping[str, str],
) -> None:
    """Compare the tensors a side must have with those that exist.

    Args:
        expected: The side.
        infos: What exists.
        where: Folder, for the messages.
        dropped: Names that are left out, with the reason.

    Raises:
        CheckpointError: Tensors are missing, unexpected or of another shape; grouped by pattern.
    """
    wanted = {stored.address: stored for stored in expected}
    missing = [address for address in wanted if address not in infos]
    extra = [key for key in infos if key not in wanted and key[2] not in dropped]
    errors: list[TaskpackError] = []
    if missing:
        errors.append(
            CheckpointError(
                f"{len(missing)} tensors are missing: {_grouped(missing)}",
                where=where,
                why="the model needs each of them; a trainer would start from random values there",
                fix="use a complete checkpoint of this model and layout",
            )
        )
    if extra:
        errors.append(
            CheckpointError(
                f"{len(extra)} tensors are not of this model: {_grouped(extra)}",
                where=where,
                why="no row of the family's table names them, and nothing is dropped silently",
                fix="check that config.json and layout belong to this checkpoint",
            )
        )
    for address, stored in wanted.items():
        info = infos.get(address)
        if info is not None and info.shape != stored.shape:
            errors.append(
                CheckpointError(
                    f"tensor {stored.name} has shape {list(info.shape)}, not {list(stored.shape)}",
                    where=f"{info.path}",
                    why="the shape follows from config.json and the layout",
                    fix="use the config.json and the layout that belong to this checkpoint",
                )
            )
            if len(errors) >= 12:
                break
    if errors:
        errors[0].also = tuple(errors[1:])
        raise errors[0]


def _grouped(addresses: Sequence[Address]) -> str:
    counts: dict[str, list[str]] = defaultdict(list)
    for file, key, name in addresses:
        counts[pattern_of(name)].append(" ".join(filter(None, (file, key, name))))
    shown = [
        names[0] if len(names) == 1 else f"{pattern} ({len(names)}x)"
        for pattern, names in counts.items()
    ]
    return shorten(shown)


def refuse_other_types(infos: Mapping[Address, TensorInfo], *, where: str) -> None:
    """Refuse tensors whose element type no weight has.

    Raises:
        CheckpointError: There are some.
    """
    odd = {name: i.dtype for (_, _, name), i in infos.items() if i.dtype not in FLOATS}
    if odd:
        name, dtype = next(iter(odd.items()))
        raise CheckpointError(
            f"{len(odd)} tensors are no weights: {name} is {dtype}",
            where=where,
            why="weights and adapters are " + ", ".join(FLOATS),
            fix="use the unquantised weights of the model",
        )


def one_dtype(infos: Mapping[Address, TensorInfo], *, where: str) -> str:
    """Give the element type that all tensors share.

    Raises:
        CheckpointError: They have several.
    """
    first: dict[str, str] = {}
    for (_, _, name), info in infos.items():
        first.setdefault(info.dtype, name)
    if len(first) == 1:
        return next(iter(first))
    shown = ", ".join(f"{dtype} ({name})" for dtype, name in sorted(first.items()))
    raise CheckpointError(
        f"the tensors have several element types: {shown}",
        where=where,
        why="keeping them would give a checkpoint of mixed precision that no trainer saves",
        fix="choose one with --dtype bf16, fp16 or fp32",
    )
