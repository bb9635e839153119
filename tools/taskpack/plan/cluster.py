"""A number of NPUs as nodes."""

from __future__ import annotations

from taskpack.errors import ProfileError


def split_npus(npus: int, per_node: int) -> tuple[int, int]:
    """Give the nodes, and the NPUs of each, that make up a number of NPUs.

    Raises:
        ProfileError: Several nodes do not make up that number.
    """
    if npus <= per_node:
        return 1, npus
    if npus % per_node:
        lower = npus // per_node * per_node
        raise ProfileError(
            f"{npus} NPUs are no whole number of nodes of {per_node}",
            where="--npus",
            why="torchrun starts the same number of processes on every node",
            fix=f"use {lower} or {lower + per_node}, or set platform.npus_per_node",
        )
    return npus // per_node, per_node
