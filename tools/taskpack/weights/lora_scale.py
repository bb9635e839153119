"""What `B @ A` is multiplied with: alpha / r, from every source that tells it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from taskpack.errors import ProfileError
from taskpack.weights.mm_folder import MmFolder

Said = tuple[float | None, float | None]
"""Alpha and r as one source gives them."""


def told_by(folder: MmFolder) -> dict[str, Said]:
    """Give what an adapter checkpoint tells: its saved arguments, then its layout file."""
    args = next(iter(folder.ranks.values())).args
    record = folder.record.lora if folder.record is not None else {}
    return {
        "the adapter's saved arguments": (args.get("lora_alpha"), args.get("lora_r")),
        "its taskpack_layout.json": (record.get("alpha"), record.get("r")),
    }


def known_alpha(folder: MmFolder) -> float | None:
    """Give the alpha that an adapter checkpoint tells, if it does."""
    told = (alpha for alpha, _ in told_by(folder).values())
    return next((float(alpha) for alpha in told if alpha is not None and _is_number(alpha)), None)


def agreed_alpha(sources: Mapping[str, Said], rank: int, *, where: str) -> float:
    """Find the alpha on which all sources agree.

    Args:
        sources: Alpha and r by the name of their source, the most trusted first.
        rank: LoRA rank that the tensors have.
        where: The adapter, for messages.

    Raises:
        ProfileError: Nothing knows alpha, or two sources disagree about it or about r.
    """
    known: dict[str, dict[str, float]] = {}
    for name, said_there in sources.items():
        for key, value in zip(("alpha", "r"), said_there, strict=True):
            if value is not None and _is_number(value):
                known.setdefault(key, {})[name] = float(value)
    known.setdefault("r", {})["the shape of lora_A"] = float(rank)
    for key, said in known.items():
        if len(set(said.values())) > 1:
            raise ProfileError(
                f"{key} is " + " but ".join(f"{value:g} in {name}" for name, value in said.items()),
                where=where,
                why="a wrong scale gives wrong weights without an error",
                fix=f"find out which {key} the adapter was trained with, and give only that",
            )
    if "alpha" not in known:
        raise ProfileError(
            "nothing tells the alpha of this adapter",
            where=where,
            why="the merged weight is W + alpha / r * B @ A",
            fix="give the value of training: --alpha A --r R, or --task tasks/MODEL",
        )
    value = next(iter(known["alpha"].values()))
    if not 0 < value < math.inf:
        raise ProfileError(
            f"alpha is {value:g}",
            where=next(iter(known["alpha"])),
            why="the merged weight is W + alpha / r * B @ A",
            fix="give the positive number that the adapter was trained with",
        )
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
