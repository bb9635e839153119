"""Rows of a parquet file, a few at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taskpack.data.json_rows import RawRow
from taskpack.data.progress import Meter
from taskpack.errors import DatasetError, HostError

BATCH_ROWS = 64


def load_pyarrow() -> Any:
    """Import pyarrow with its parquet module.

    Raises:
        HostError: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise HostError(
            "this Python has no pyarrow",
            where=sys.executable,
            why="it reads and writes parquet",
            fix="pip install 'taskpack[data]'",
        ) from None
    return pyarrow


def parquet_rows(path: Path, meter: Meter | None) -> Iterator[RawRow]:
    """Yield rows as the JSON readers do; cells of images are bytes.

    Raises:
        DatasetError: The file is not whole.
    """
    pyarrow = load_pyarrow()
    number = 0
    try:
        # its default keeps whole column chunks of image bytes in memory
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as table:
            rows = max(table.metadata.num_rows, 1)
            share = path.stat().st_size / rows
            for batch in table.iter_batches(batch_size=BATCH_ROWS):
                for value in batch.to_pylist():
                    yield RawRow(number, value, 0, 0)
                    number += 1
                if meter is not None:
                    meter.add_bytes(int(share * batch.num_rows))
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DatasetError(
            f"{path.name} is not a whole parquet file: {error}",
            where=f"{path} after row {number - 1}",
            why="a file that was cut off or damaged reads like this",
            fix="copy the file again",
        ) from None
