"""Progress over input bytes and rows, on a terminal only."""

from __future__ import annotations

from types import TracebackType

from tqdm import tqdm


class Meter:
    """Shows bytes read of all, the time left, and rows per second."""

    def __init__(self, total_bytes: int, *, shown: bool = True) -> None:
        self._bar = tqdm(
            total=total_bytes,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            disable=None if shown else True,
            leave=False,
        )
        self._rows = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def add_bytes(self, count: int) -> None:
        """Count bytes of the input."""
        self._bar.update(count)

    def add_rows(self, count: int) -> None:
        """Count rows that are dealt with."""
        self._rows += count
        if not self._bar.disable:
            elapsed = self._bar.format_dict["elapsed"] or 1e-9
            self._bar.set_postfix_str(f"{self._rows / elapsed:.0f} rows/s", refresh=False)
