"""Read a rank file without running anything in it.

The zip directory and the pickle are enough to know every tensor's place. Names in the pickle
become inert stand-ins; a name from outside the allowlist is refused, whatever it would have done.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from taskpack.errors import CheckpointError, shorten
from taskpack.weights.dtypes import BY_STORAGE
from taskpack.weights.tensors import TensorInfo

ALLOWED_MODULES = (
    "torch",
    "numpy",
    "argparse",
    "collections",
    "enum",
    "megatron",
    "mindspeed",
    "mindspeed_mm",
    "transformers",
    "omegaconf",
)
_PLAIN_BUILTINS = frozenset(
    {
        *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int"),
        *("list", "object", "range", "set", "slice", "str", "tuple"),
    }
)
_PICKLE_LIMIT = 1 << 30


class _Inert:
    """Stands where a pickled object was; keeps its state and does nothing."""

    qualified: ClassVar[str] = ""

    def __new__(cls, *_args: object, **_kwargs: object) -> _Inert:
        return super().__new__(cls)

    def __init__(self, *args: object, **_kwargs: object) -> None:
        self.arguments = args
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """Ignore an item of a stood-in mapping."""

    def append(self, item: object) -> None:
        """Ignore an item of a stood-in sequence."""

    def extend(self, items: object) -> None:
        """Ignore items of a stood-in sequence."""

    def add(self, item: object) -> None:
        """Ignore an item of a stood-in set."""


@dataclass(frozen=True, slots=True)
class _Storage:
    storage: str
    record: str
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankFile:
    """What a rank file holds.

    Attributes:
        path: The file.
        models: The state dicts (`model`, or `model0`, ...) and their tensors.
        without_tensor: Entries of the state dicts that are no tensor (`_extra_state`).
        others: Top level keys besides the state dicts, such as `optimizer` and `args`.
        args: The training arguments saved with it, as plain values; empty without any.
    """

    path: Path
    models: Mapping[str, Mapping[str, TensorInfo]]
    without_tensor: tuple[str, ...]
    others: tuple[str, ...]
    args: Mapping[str, Any]


def read_rank_file(path: Path) -> RankFile:
    """Read the tensors' places from a `.pt` file.

    Raises:
        CheckpointError: The file is absent, damaged, of the old format, holds a forbidden name or
            a tensor that is not contiguous.
    """
    try:
        with path.open("rb") as file:
            _check_magic(path, file.read(4))
            with zipfile.ZipFile(file) as archive:
                records = {info.filename: info for info in archive.infolist()}
                root = _root_of(path, records)
                content = _Unpickler(path, _read_pickle(path, archive, f"{root}/data.pkl")).load()
            return _resolve(path, file, root, records, content)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise CheckpointError(
            "a rank file is missing",
            where=str(path),
            why="every rank of the layout has one",
            fix="copy the missing file, or name the layout the checkpoint really has",
        ) from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise _damaged(path, f"its zip directory cannot be read ({error})") from None


def _check_magic(path: Path, magic: bytes) -> None:
    if magic.startswith(b"PK"):
        return
    if magic.startswith(b"\x80"):
        raise CheckpointError(
            "the rank file has torch's old format, from before the zip format of torch 1.6",
            where=str(path),
            why="tensors cannot be found in it without running its pickle",
            fix="load it where it was made and save it again with a current torch",
        )
    raise _damaged(path, "it is no zip file")


def _root_of(path: Path, records: Mapping[str, zipfile.ZipInfo]) -> str:
    roots = [name[: -len("/data.pkl")] for name in records if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise _damaged(path, "it has no data.pkl")
    return roots[0]


def _read_pickle(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > _PICKLE_LIMIT or info.compress_type != zipfile.ZIP_STORED:
        raise _damaged(path, f"its data.pkl has {info.file_size} bytes or is compressed")
    return archive.read(name)


class _Unpickler(pickle.Unpickler):
    """Rebuilds the structure of a checkpoint out of inert parts."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self._path = path

    def load(self) -> object:
        try:
            return super().load()
        except (
            *(pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError),
            *(IndexError, KeyError, OverflowError, UnicodeDecodeError, RecursionError),
            MemoryError,
        ) as error:
            raise _damaged(self._path, f"its pickle cannot be read ({error})") from None

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("collections", "OrderedDict"), ("builtins", "dict")):
            return dict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _rebuild_tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _rebuild_parameter
        allowed = (
            module.partition(".")[0] in ALLOWED_MODULES
            or (module in ("builtins", "__builtin__") and name in _PLAIN_BUILTINS)
            or (module, name) == ("_codecs", "encode")  # how protocol 2 spells bytes
        )
        if not allowed:
            raise CheckpointError(
                f"the rank file names {module}.{name}",
                where=str(self._path),
                why="a checkpoint needs no such name; loading it with torch could run code",
                fix="do not load this file; get the checkpoint from someone you trust",
            )
        return _inert(module, name)

    def persistent_load(self, pid: Any) -> object:
        _, storage, record, _, count = pid
        return _Storage(storage.qualified.rpartition(".")[2], str(record), int(count))


@lru_cache(maxsize=1024)
def _inert(module: str, name: str) -> type[_Inert]:
    return type(name.rpartition(".")[2], (_Inert,), {"qualified": f"{module}.{name}"})


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise TypeError(f"a tensor rests on {type(storage).__name__}, not on a storage")
    if any(type(number) is not int or number < 0 for number in (offset, *shape, *stride)):
        raise TypeError(f"a tensor has the offset {offset!r} and the shape {shape!r}")
    if len(shape) != len(stride):
        raise TypeError(f"a tensor has the shape {shape!r} and the stride {stride!r}")
    return _Tensor(storage, offset, tuple(shape), tuple(stride))


def _rebuild_parameter(data: object, *_rest: object) -> object:
    return data


def _resolve(
    path: Path,
    file: io.BufferedReader,
    root: str,
    records: Mapping[str, zipfile.ZipInfo],
    content: object,
) -> RankFile:
    if not isinstance(content, dict):
        raise _damaged(path, "it holds no table")
    models: dict[str, dict[str, TensorInfo]] = {}
    without: list[str] = []
    for key, state in content.items():
        if not (isinstance(key, str) and _is_model_key(key) and isinstance(state, dict)):
            continue
        models[key] = {}
        for name, value in state.items():
            if isinstance(value, _Tensor):
                models[key][name] = _place(path, file, records, f"{root}/data/", name, value)
            else:
                without.append(f"{key}:{name}")
    if not models:
        raise CheckpointError(
            f"the rank file holds no model, only {shorten([str(key) for key in content])}",
            where=str(path),
            why="the weights are under `model`, or `model0`, `model1`, ... with virtual stages",
            fix="name the folder that training saved or that `taskpack convert` wrote",
        )
    others = tuple(str(key) for key in content if key not in models)
    saved = getattr(content.get("args"), "state", None)
    args = saved if isinstance(saved, dict) else {}
    return RankFile(path, models, tuple(without), others, args)


def _is_model_key(key: str) -> bool:
    return key == "model" or (key.startswith("model") and key[5:].isdigit())


def _place(
    path: Path,
    file: io.BufferedReader,
    records: Mapping[str, zipfile.ZipInfo],
    prefix: str,
    name: str,
    tensor: _Tensor,
) -> TensorInfo:
    dtype = BY_STORAGE.get(tensor.storage.storage)
    record = records.get(prefix + tensor.storage.record)
    if dtype is None or record is None:
        raise _damaged(path, f"tensor {name!r} has an unknown type or no bytes")
    expected, strides = 1, []
    for length in reversed(tensor.shape):
        strides.append(expected)
        expected *= length
    ordered = all(
        length == 1 or have == want
        for length, have, want in zip(tensor.shape, tensor.stride, reversed(strides), strict=True)
    )
    end = (tensor.offset + expected) * dtype.itemsize
    if record.compress_type != zipfile.ZIP_STORED or end > record.file_size or not ordered:
        raise CheckpointError(
            f"tensor {name!r} is compressed, cut, or not contiguous",
            where=str(path),
            why="tensors are read as runs of bytes",
            fix="save the checkpoint again with contiguous tensors",
        )
    file.seek(record.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise _damaged(path, f"the bytes of tensor {name!r} are not where the directory says")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    start = record.header_offset + 30 + name_length + extra_length
    return TensorInfo(path, dtype.name, tensor.shape, start + tensor.offset * dtype.itemsize)


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"the rank file is damaged: {how}",
        where=str(path),
        why="it was cut, changed, or is no checkpoint of torch",
        fix="copy or convert it again",
    )
