"""A bar that counts bytes, on a terminal only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from typing_extensions import Self


class ByteBar:
    """Shows how many of `total` bytes are done, and the time left."""

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self._bar = tqdm(
            total=total,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            disable=None if shown else True,
            leave=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.close()

    def add_bytes(self, count: int) -> None:
        """Count bytes that are done."""
        self._bar.update(count)
