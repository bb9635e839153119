"""Geometry3k to the parquet that reinforcement learning reads, or to messages for fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from taskpack.data.convert import Conversion, ConvertOptions, convert
from taskpack.data.formats import Format
from taskpack.data.outputs import already_there
from taskpack.data.parquet_rows import BATCH_ROWS, load_pyarrow
from taskpack.data.sources import read_values
from taskpack.errors import DatasetError

SOURCE = "hiyouga/geometry3k"
INSTRUCTION = (
    "You FIRST think about the reasoning process as an internal monologue and then provide the "
    "final answer. The reasoning process MUST BE enclosed within <think> </think> tags. The final "
    "answer MUST BE put in \\boxed{}."
)
"""The reward functions of the examples look for exactly these marks."""
SPLITS = ("train", "test")


def convert_geo3k(source: Path, out: Path, *, overwrite: bool = False) -> dict[str, int]:
    """Write `train.parquet` and `test.parquet`, one row for each of the source's.

    Args:
        source: A folder with the parquet files of geometry3k, named `train-*` and `test-*`, at
            any depth.
        out: Folder of the files; each appears only when it is complete.
        overwrite: Replace files that are there.

    Returns:
        Rows of each file.

    Raises:
        DatasetError: A file is missing or of another kind.
        HostError: An output is already there.
    """
    parts = {split: _files(source, split) for split in SPLITS}
    targets = {split: out / f"{split}.parquet" for split in SPLITS}
    for target in targets.values():
        if target.exists() and not overwrite:
            raise already_there(target)
    out.mkdir(parents=True, exist_ok=True)
    partial = {split: targets[split].with_suffix(".parquet.partial") for split in SPLITS}
    try:
        rows = {}
        for split in SPLITS:
            rows[str(targets[split])] = _write(partial[split], _rl_rows(parts[split], split))
        for split in SPLITS:
            partial[split].replace(targets[split])
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)
    return rows


def convert_geo3k_sft(source: Path, out: Path, *, overwrite: bool = False) -> list[Conversion]:
    """Write `train.json` and `test.json` of messages, and the images beside them.

    Raises:
        DatasetError: A file is missing or of another kind.
        HostError: An output is already there.
    """
    options = ConvertOptions(
        form=Format.GEOMETRY3K, media_root=out, relative_to=out, overwrite=overwrite
    )
    return [
        convert(_files(source, split), out / f"geo3k_{split}.json", options) for split in SPLITS
    ]


def _files(source: Path, split: str) -> list[Path]:
    found = sorted([*source.rglob(f"{split}.parquet"), *source.rglob(f"{split}-*.parquet")])
    if not found:
        raise DatasetError(
            f"{source} has no {split}-*.parquet",
            where=str(source),
            why="geometry3k comes as parquet files of train, validation and test",
            fix=f"download the data set {SOURCE} and name its folder",
        )
    return found


def _rl_rows(files: Iterable[Path], split: str) -> Iterator[dict[str, Any]]:
    index = 0
    for path in files:
        for value in read_values(path):
            yield _rl_row(value, split, index, path)
            index += 1


def _rl_row(value: object, split: str, index: int, path: Path) -> dict[str, Any]:
    keys = ("problem", "answer", "images")
    if not isinstance(value, Mapping) or any(value.get(key) is None for key in keys):
        raise DatasetError(
            f"row {index} lacks one of {', '.join(keys)}",
            where=f"{path} row {index}",
            why="geometry3k rows have a problem, an answer and images",
            fix=f"check that this is {SOURCE}",
        )
    problem, answer = value["problem"], value["answer"]
    return {
        "data_source": SOURCE,
        "prompt": [{"role": "user", "content": f"{problem} {INSTRUCTION}"}],
        "images": value["images"],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": problem},
    }


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.int64()
    message = pyarrow.struct([("content", text), ("role", text)])
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", text)])
    extra = [("answer", text), ("index", number), ("question", text), ("split", text)]
    fields = [
        ("data_source", text),
        ("prompt", pyarrow.list_(message)),
        ("images", pyarrow.list_(image)),
        ("ability", text),
        ("reward_model", pyarrow.struct([("ground_truth", text), ("style", text)])),
        ("extra_info", pyarrow.struct(extra)),
    ]
    return pyarrow.schema(fields, metadata={"huggingface": json.dumps(_features())})


def _features() -> dict[str, Any]:
    """Say what the `datasets` library needs to give images rather than bytes."""
    text = {"dtype": "string", "_type": "Value"}
    extra = {"answer": text, "index": {"dtype": "int64", "_type": "Value"}}
    columns = {
        "data_source": text,
        "prompt": [{"content": text, "role": text}],
        "images": {"feature": {"_type": "Image"}, "_type": "Sequence"},
        "ability": text,
        "reward_model": {"ground_truth": text, "style": text},
        "extra_info": {**extra, "question": text, "split": text},
    }
    return {"info": {"features": columns}}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    pyarrow = load_pyarrow()
    schema = _schema(pyarrow)
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while held := list(islice(rows, BATCH_ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(held, schema=schema))
            count += len(held)
    return count
