"""Progress over input bytes and rows."""

from __future__ import annotations

from taskpack.progress import ByteBar


class Meter(ByteBar):
    """Shows bytes read of all, the time left, and rows per second."""

    def __init__(self, total_bytes: int, *, shown: bool = True) -> None:
        super().__init__(total_bytes, shown=shown)
        self._rows = 0

    def add_rows(self, count: int) -> None:
        """Count rows that are dealt with."""
        self._rows += count
        if not self._bar.disable:
            elapsed = self._bar.format_dict["elapsed"] or 1e-9
            self._bar.set_postfix_str(f"{self._rows / elapsed:.0f} rows/s", refresh=False)
