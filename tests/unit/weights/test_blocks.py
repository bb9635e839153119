import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskpack.weights.blocks import Block, Cover, Piece, interleave, share_out


def rows(blocks: list[Block]) -> list[tuple[int, int]]:
    return [(block.section, row) for block in blocks for row in range(block.start, block.stop)]


def test_query_groups_hold_their_queries_then_one_key_and_one_value() -> None:
    # 2 groups; 2 query heads, 1 key and 1 value head of one row each per group
    (first, second) = interleave([4, 2, 2], 2)
    assert rows(first) == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert rows(second) == [(0, 2), (0, 3), (1, 1), (2, 1)]


def test_gate_and_up_rows_alternate_per_rank() -> None:
    ranks = share_out(interleave([4, 4], 2), 2)
    assert rows(ranks[0]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rows(ranks[1]) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_a_rank_owns_consecutive_groups() -> None:
    ranks = share_out(interleave([8, 4, 4], 4), 2)
    assert rows(ranks[0]) == [
        *[(0, 0), (0, 1), (1, 0), (2, 0)],
        *[(0, 2), (0, 3), (1, 1), (2, 1)],
    ]


def test_uneven_heads_are_weighted_parts() -> None:
    # three heads over two ranks: the first rank has two of them
    parts = interleave([6, 6], [2, 1])
    assert rows(parts[0]) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert rows(parts[1]) == [(0, 4), (0, 5), (1, 4), (1, 5)]


def test_touching_blocks_become_one_run() -> None:
    assert share_out(interleave([8], 4), 2) == [[Block(0, 0, 4)], [Block(0, 4, 8)]]


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="7 rows do not divide into 2 equal parts"):
        interleave([8, 7], 2)


def test_parts_that_ranks_cannot_share_are_refused() -> None:
    with pytest.raises(ValueError, match="3 parts cannot be shared by 2 ranks"):
        share_out(interleave([6], 3), 2)


orders = st.builds(
    lambda sections, ranks, per_rank, unit: (
        [count * ranks * per_rank * unit for count in sections],
        ranks * per_rank,
        ranks,
    ),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
)


@given(orders)
def test_ranks_hold_every_row_once(order: tuple[list[int], int, int]) -> None:
    sections, parts, ranks = order
    held = [row for blocks in share_out(interleave(sections, parts), ranks) for row in rows(blocks)]
    assert sorted(held) == [(s, row) for s, length in enumerate(sections) for row in range(length)]


def placed(order: tuple[list[int], int, int]) -> list[list[Piece]]:
    """Pieces of each rank, every section being one logical tensor."""
    sections, parts, ranks = order
    result = []
    for blocks in share_out(interleave(sections, parts), ranks):
        pieces, offset = [], 0
        for block in blocks:
            pieces.append(Piece(str(block.section), block.start, block.stop, offset))
            offset += block.stop - block.start
        result.append(pieces)
    return result


def contents(side: list[list[Piece]]) -> list[list[tuple[str, int]]]:
    return [
        [(piece.tensor, row) for piece in pieces for row in range(piece.start, piece.stop)]
        for pieces in side
    ]


def moved(source: list[list[Piece]], target: list[list[Piece]]) -> list[list[object]]:
    """Carry the rows of one side into the places of another."""
    held = contents(source)
    tensors = {piece.tensor for pieces in source for piece in pieces}
    covers = {
        tensor: Cover(
            (rank, piece)
            for rank, pieces in enumerate(source)
            for piece in pieces
            if piece.tensor == tensor
        )
        for tensor in tensors
    }
    result: list[list[object]] = []
    for pieces in target:
        size = sum(piece.stop - piece.start for piece in pieces)
        filled: list[object] = [None] * size
        for piece in pieces:
            for move in covers[piece.tensor].moves(piece):
                for step in range(move.length):
                    place = move.target_offset + step
                    assert filled[place] is None
                    filled[place] = held[move.source][move.source_offset + step]
        result.append(filled)
    return result


@given(orders, st.data())
def test_any_order_turns_into_any_other_and_back(
    order: tuple[list[int], int, int], data: st.DataObject
) -> None:
    sections, parts, _ = order
    divisors = [n for n in range(1, parts + 1) if all(rows % n == 0 for rows in sections)]
    other_parts = data.draw(st.sampled_from(divisors))
    other_ranks = data.draw(st.sampled_from([n for n in divisors if other_parts % n == 0]))
    a, b = placed(order), placed((sections, other_parts, other_ranks))
    plain = [[Piece(str(s), 0, length, 0)] for s, length in enumerate(sections)]
    assert moved(a, b) == contents(b)
    assert moved(b, a) == contents(a)
    assert moved(a, plain) == contents(plain)


def test_the_first_holder_of_a_row_is_its_source_and_others_are_replicas() -> None:
    cover = Cover([(1, Piece("w", 0, 4, 0)), (0, Piece("w", 0, 4, 0))])
    assert [move.source for move in cover.moves(Piece("w", 0, 4, 0))] == [0]
    assert cover.replicas == [(1, Piece("w", 0, 4, 0))]


def test_rows_that_nobody_holds_are_gaps() -> None:
    cover = Cover([(0, Piece("w", 0, 2, 0)), (1, Piece("w", 3, 4, 0))])
    assert cover.gaps(6) == [(2, 3), (4, 6)]
