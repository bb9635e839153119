"""Lay out a rank file as `torch.save` writes it: a stored zip of one pickle and raw storages.

The pickle is emitted opcode by opcode, so no torch is needed and nothing version dependent gets
in. Format: torch's serialization notes (records under one root folder, storages aligned to 64
bytes, `version` 3) and APPNOTE 6.3.10 for zip64.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskpack.weights.checksums import crc32
from taskpack.weights.dtypes import DTYPES
from taskpack.weights.out_file import Extent, OutFile, TensorKey, TensorSpec

CHECKPOINT_VERSION = 3.0
"""Megatron refuses to load a file without it."""

_ROOT = "model_optim_rng"
_ALIGNMENT = 64
_LIMIT32 = 0xFFFFFFFF
_DATE = 0x0021  # 1980-01-01, so that the same weights give the same bytes


def lay_out_rank_file(path: str, keys: Sequence[str], specs: Sequence[TensorSpec]) -> OutFile:
    """Lay out a rank file with a state dict under each key and `checkpoint_version` 3.0.

    Args:
        path: Relative path of the file.
        keys: `model`, or `model0`, `model1`, ... ; each gets its dict even when it is empty.
        specs: The tensors; `spec.key` is one of `keys`.
    """
    storages = {spec.address: index for index, spec in enumerate(specs)}
    records = [
        _Record(f"{_ROOT}/data.pkl", content=_pickle(keys, specs, storages)),
        _Record(f"{_ROOT}/byteorder", content=b"little"),
        *(
            _Record(
                f"{_ROOT}/data/{storages[spec.address]}", size=spec.nbytes, address=spec.address
            )
            for spec in specs
        ),
        _Record(f"{_ROOT}/version", content=b"3\n"),
    ]
    starts: list[int] = []
    at = 0
    for record in records:
        starts.append(at)
        at = record.data_offset(at) + record.nbytes
    head = [
        (record.data_offset(start), record.content)
        for record, start in zip(records, starts, strict=True)
        if record.content
    ]
    directory_at = at

    def tail(crcs: Mapping[TensorKey, int]) -> tuple[Extent, ...]:
        extents: list[Extent] = []
        directory = b""
        for record, start in zip(records, starts, strict=True):
            crc = crcs[record.address] if record.address else crc32(record.content)
            extents.append((start, record.local_header(start, crc)))
            directory += record.directory_entry(start, crc)
        end = directory + _end_of_directory(len(records), directory_at, len(directory))
        return (*extents, (directory_at, end))

    empty = {spec.address: 0 for spec in specs}
    return OutFile(
        path=path,
        size=directory_at + len(tail(empty)[-1][1]),
        specs=tuple(specs),
        offsets={
            record.address: record.data_offset(start)
            for record, start in zip(records, starts, strict=True)
            if record.address
        },
        head=tuple(head),
        tail=tail,
        needs_crc=True,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    content: bytes = b""
    size: int = 0
    address: TensorKey | None = None

    @property
    def nbytes(self) -> int:
        return len(self.content) or self.size

    def _local_zip64(self) -> bytes:
        if self.nbytes < _LIMIT32:
            return b""
        return struct.pack("<HHQQ", 1, 16, self.nbytes, self.nbytes)

    def _local_extra(self, start: int) -> bytes:
        zip64 = self._local_zip64()
        fixed = start + 30 + len(self.name) + len(zip64) + 4
        padding = -fixed % _ALIGNMENT
        return zip64 + struct.pack("<2sH", b"FB", padding) + b"Z" * padding

    def data_offset(self, start: int) -> int:
        return start + 30 + len(self.name) + len(self._local_extra(start))

    def local_header(self, start: int, crc: int) -> bytes:
        extra = self._local_extra(start)
        shown = min(self.nbytes, _LIMIT32)
        version = 45 if self.nbytes >= _LIMIT32 else 20
        fixed = struct.pack(
            "<4sHHHHHIIIHH",
            *(b"PK\x03\x04", version, 0, 0, 0, _DATE, crc, shown, shown),
            *(len(self.name), len(extra)),
        )
        return fixed + self.name.encode() + extra

    def directory_entry(self, start: int, crc: int) -> bytes:
        wide = [self.nbytes, self.nbytes] if self.nbytes >= _LIMIT32 else []
        wide += [start] if start >= _LIMIT32 else []
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version = 45 if wide else 20
        shown = min(self.nbytes, _LIMIT32)
        fixed = struct.pack(
            "<4sHHHHHHIIIHHHHHII",
            *(b"PK\x01\x02", version, version, 0, 0, 0, _DATE, crc, shown, shown),
            *(len(self.name), len(extra), 0, 0, 0, 0, min(start, _LIMIT32)),
        )
        return fixed + self.name.encode() + extra


def _end_of_directory(count: int, offset: int, size: int) -> bytes:
    end = struct.pack(
        "<4sHHHHIIH",
        *(b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF)),
        *(min(size, _LIMIT32), min(offset, _LIMIT32), 0),
    )
    if count < 0xFFFF and offset < _LIMIT32 and size < _LIMIT32:
        return end
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, offset + size, 1)
    return wide + locator + end


def _pickle(
    keys: Sequence[str], specs: Sequence[TensorSpec], storages: Mapping[TensorKey, int]
) -> bytes:
    out = bytearray(b"\x80\x02}(")
    for key in keys:
        out += _text(key) + b"}("
        for spec in specs:
            if spec.key == key:
                out += _text(spec.name) + _tensor(spec, str(storages[spec.address]))
        out += b"u"
    out += _text("checkpoint_version") + b"G" + struct.pack(">d", CHECKPOINT_VERSION)
    return bytes(out + b"u.")


def _tensor(spec: TensorSpec, storage: str) -> bytes:
    count, strides = 1, []
    for length in reversed(spec.shape):
        strides.append(count)
        count *= length
    persistent_id = (
        b"("
        + _text("storage")
        + _global("torch", DTYPES[spec.dtype].storage)
        + _text(storage)
        + _text("cpu")
        + _integer(count)
        + b"tQ"
    )
    shape = b"(" + b"".join(map(_integer, spec.shape)) + b"t"
    stride = b"(" + b"".join(map(_integer, reversed(strides))) + b"t"
    hooks = _global("collections", "OrderedDict") + b")R"
    arguments = b"(" + persistent_id + _integer(0) + shape + stride + b"\x89" + hooks + b"t"
    return _global("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _integer(value: int) -> bytes:
    if value <= 0x7FFFFFFF:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes((value.bit_length() // 8) + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw
