"""Hugging Face folders with something wrong in them: refused by name, and nothing written."""

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from builders import INDEX, Refusals, convert, read_hf, read_safetensors, write_safetensors

pytestmark = pytest.mark.torch

SHARD = "model-00002-of-00003.safetensors"
Breaks = Callable[[Path], object]
Capture = pytest.CaptureFixture[str]


def shard_header(change: Callable[[dict[str, Any]], Mapping[str, Any] | bytes]) -> Breaks:
    """Replace the header of one shard."""

    def breaks(hf: Path) -> None:
        content = (hf / SHARD).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        new = change(json.loads(content[8 : 8 + length]))
        text = new if isinstance(new, bytes) else json.dumps(new).encode()
        (hf / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    return breaks


def first_entry(**fields: object) -> Breaks:
    """Change fields of a shard's first tensor."""

    def change(header: dict[str, Any]) -> dict[str, Any]:
        name = next(name for name in header if name != "__metadata__")
        header[name].update(fields)
        return header

    return shard_header(change)


def every_offset(kind: type) -> Breaks:
    """Spell all offsets of a shard in another type."""

    def change(header: dict[str, Any]) -> dict[str, Any]:
        for name, entry in header.items():
            if name != "__metadata__":
                entry["data_offsets"] = [kind(n) for n in entry["data_offsets"]]
        return header

    return shard_header(change)


def header_length(length: int) -> Breaks:
    def breaks(hf: Path) -> None:
        content = (hf / SHARD).read_bytes()
        (hf / SHARD).write_bytes(struct.pack("<Q", length) + content[8:])

    return breaks


def cut(nbytes: int) -> Breaks:
    return lambda hf: os.truncate(hf / SHARD, (hf / SHARD).stat().st_size - nbytes)


def cut_to(nbytes: int) -> Breaks:
    return lambda hf: os.truncate(hf / SHARD, nbytes)


def replaced_by(make: Callable[[Path], object]) -> Breaks:
    def breaks(hf: Path) -> None:
        (hf / SHARD).unlink()
        make(hf / SHARD)

    return breaks


SHARDS = [
    (lambda hf: (hf / SHARD).unlink(), f"1 of 3 shards are missing: {SHARD}"),
    (replaced_by(lambda path: path.symlink_to("gone")), f"1 of 3 shards are missing: {SHARD}"),
    (replaced_by(lambda path: path.symlink_to(SHARD)), f"1 of 3 shards are missing: {SHARD}"),
    (replaced_by(lambda path: path.mkdir()), f"1 of 3 shards are missing: {SHARD}"),
    (replaced_by(os.mkfifo), f"1 of 3 shards are missing: {SHARD}"),
    (cut(100), "is damaged: its header describes"),
    (cut_to(500), "is damaged: its header claims"),
    (cut_to(4), "is damaged"),
    (cut_to(0), "is damaged"),
    (lambda hf: (hf / SHARD).open("ab").write(b"more"), "is damaged: its header describes"),
    (header_length(10**9), "is damaged: its header claims 1000000000 bytes"),
    (header_length(2**64 - 1), "is damaged: its header claims 18446744073709551615 bytes"),
    (header_length(0), "is damaged: its header claims 0 bytes"),
    (header_length(3), "is damaged: its header is not JSON"),
    (shard_header(lambda _: b"\xff\xfe{}"), "is damaged: its header is not JSON"),
    (shard_header(lambda _: b"[1]"), "is damaged: its header is not a table"),
    (shard_header(lambda header: {**header, "x": None}), "the entry of tensor 'x' is incomplete"),
    (first_entry(data_offsets=[-4, 0]), "is damaged: tensor"),
    (first_entry(data_offsets=None), "is incomplete"),
    (first_entry(shape=[-1, -2]), "is damaged: tensor"),
    (first_entry(shape=[10**30]), "is damaged: tensor"),
    (first_entry(shape=["a"]), "is incomplete"),
    (first_entry(dtype="F8_E4M3"), "has the element type F8_E4M3"),
    (first_entry(dtype=None), "has the element type None"),
    (first_entry(data_offsets=["a", "b"]), "damaged"),
    (first_entry(dtype=["BF16"]), "damaged"),
    (first_entry(shape=[float("inf")]), "damaged"),
    (shard_header(lambda _: b"[" * 200_000), "is damaged"),
    (every_offset(float), "is damaged"),
]


@pytest.mark.parametrize(("breaks", "message"), SHARDS)
def test_a_damaged_shard_is_named(
    breaks: Breaks, message: str, tmp_path: Path, capsys: Capture
) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    breaks(hf)
    command = ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *builders.LAYOUT_FLAGS)
    said = Refusals(capsys)(3, *command, out=mm)
    assert message in said and SHARD in said


def index(change: Callable[[dict[str, str]], object]) -> Breaks:
    def breaks(hf: Path) -> None:
        new = change(json.loads((hf / INDEX).read_text())["weight_map"])
        text = new if isinstance(new, str) else json.dumps({"weight_map": new})
        (hf / INDEX).write_text(text)

    return breaks


def without_index(breaks: Breaks) -> Breaks:
    def both(hf: Path) -> None:
        (hf / INDEX).unlink()
        breaks(hf)

    return both


def tensors(change: Callable[[dict[str, Any]], object], *, listed: bool = True) -> Breaks:
    """Change the tensors of one shard, and the index with them."""

    def breaks(hf: Path) -> None:
        content = read_safetensors(hf / SHARD)
        change(content)
        write_safetensors(hf / SHARD, content)
        record = json.loads((hf / INDEX).read_text())
        others = {k: f for k, f in record["weight_map"].items() if f != SHARD}
        if listed:
            record["weight_map"] = others | dict.fromkeys(content, SHARD)
        (hf / INDEX).write_text(json.dumps(record))

    return breaks


def zeros(*shape: int) -> tuple[str, Any]:
    return "BF16", np.zeros(shape, "<u2")


NORM = "visual.blocks.0.norm2.weight"
DOUBLE = "visual.patch_embed.proj.weight"  # it is in the first shard
WRONG_TENSORS = [
    (index(lambda m: dict.fromkeys(m, "gone.safetensors")), "missing: gone.safetensors"),
    (index(lambda m: dict.fromkeys(m, "../x.safetensors")), "the index is damaged"),
    (index(lambda m: dict.fromkeys(m, None)), "the index is damaged"),
    (index(lambda _: [1]), "the index is damaged"),
    (index(lambda _: "{{"), "the index is damaged"),
    (index(lambda _: {}), "holds no *.safetensors file"),
    (index(lambda _: "[" * 200_000), "damaged"),
    (tensors(lambda t: t.pop(NORM)), f"1 tensors are missing: {NORM}"),
    (tensors(lambda t: t.pop(NORM), listed=False), f"disagree about 1 tensors: {NORM}"),
    (tensors(lambda t: t.update({"a.b": zeros(2)}), listed=False), "disagree about 1 tensors: a.b"),
    (tensors(lambda t: t.update({"a.b": zeros(2)})), "1 tensors are not of this model"),
    (
        tensors(lambda t: t.update({"model.layers.99.mlp.up_proj.weight": zeros(2)})),
        "model.layers.99.mlp.up_proj.weight",
    ),
    (
        tensors(lambda t: t.update({"model.language_model.norm.weight": zeros(32)})),
        "1 tensors are not of this model",
    ),
    (tensors(lambda t: t.update({DOUBLE: zeros(2)}), listed=False), "are in two shards"),
    (without_index(lambda hf: (hf / SHARD).unlink()), f"missing: {SHARD}"),
    (
        without_index(lambda hf: (hf / "model-00003-of-00003.safetensors").unlink()),
        "missing: model-00003-of-00003.safetensors",
    ),
    (tensors(lambda t: t.update({NORM: zeros(7)})), f"{NORM} has shape [7], not [16]"),
    (tensors(lambda t: t.update({NORM: zeros()})), f"{NORM} has shape [], not [16]"),
    (
        tensors(lambda t: t.update({NORM: ("F16", t[NORM][1])})),
        f"several element types: bf16 ({DOUBLE}), fp16 ({NORM})",
    ),
    (lambda hf: [path.unlink() for path in hf.glob("model*")], "holds no *.safetensors file"),
]


@pytest.mark.parametrize(("breaks", "message"), WRONG_TENSORS)
def test_wrong_tensors_are_named(
    breaks: Breaks, message: str, tmp_path: Path, capsys: Capture
) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    breaks(hf)
    command = ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *builders.LAYOUT_FLAGS)
    assert message in Refusals(capsys)(3, *command, out=mm)


def test_many_missing_tensors_are_grouped_by_pattern(tmp_path: Path, capsys: Capture) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf", shards=1), tmp_path / "mm"
    path = hf / "model.safetensors"
    kept = {k: v for k, v in read_safetensors(path).items() if ".self_attn." not in k}
    write_safetensors(path, kept)
    command = ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *builders.LAYOUT_FLAGS)
    said = Refusals(capsys)(3, *command, out=mm)
    assert "28 tensors are missing" in said
    assert "model.layers.*.self_attn.q_proj.weight (4x)" in said


def test_a_stray_shard_beside_an_index_is_noted_and_left_out(
    tmp_path: Path, capsys: Capture
) -> None:
    hf = builders.make_hf(tmp_path / "hf")
    (hf / "consolidated.safetensors").write_bytes((hf / SHARD).read_bytes())
    assert convert(hf, tmp_path / "mm", "--json") == 0
    assert json.loads(capsys.readouterr().out)["strays"] == ["consolidated.safetensors"]
    back = tmp_path / "back"
    command = ("convert", "mm-to-hf", "--mm", tmp_path / "mm", "--hf-ref", hf, "--hf", back)
    assert builders.run(*command) == 0
    original, returned = read_hf(hf), read_hf(back)
    assert all((original[name] == returned[name]).all() for name in original)


def test_integers_are_not_cast(tmp_path: Path, capsys: Capture) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    tensors(lambda t: t.update({NORM: ("I16", t[NORM][1])}))(hf)
    command = ("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *builders.LAYOUT_FLAGS)
    Refusals(capsys)(3, *command, "--dtype", "bf16", out=mm)
