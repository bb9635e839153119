"""Columns of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(rows: Sequence[Sequence[str]], *, right: Collection[int]) -> list[str]:
    """Line up rows of cells.

    Args:
        rows: Rows of one length, the head among them.
        right: Numbers of the columns that end flush.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 node`, `2 nodes`."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def billions(number: int) -> str:
    """Write a number of parameters in billions, or in millions where it is smaller."""
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"
