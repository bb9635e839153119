"""Rank files from anywhere: nothing in them runs, and damage is named."""

import enum
import os
import random
import shutil
import struct
import sys
import types
import zipfile
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
from builders import Refusals

pytestmark = pytest.mark.torch

FILE = Path("release") / "mp_rank_01_001" / "model_optim_rng.pt"
NORM = "text_decoder.decoder.final_layernorm.weight"
PROJ = "text_decoder.decoder.layers.0.self_attention.linear_proj.weight"
Breaks = Callable[[Path], object]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `hf` and `mm`, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    assert builders.convert(builders.make_hf(folder / "hf"), folder / "mm") == 0
    return folder


@pytest.fixture
def mm(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "mm", tmp_path / "mm"))


def export(made: Path, mm: Path, out: Path) -> tuple[object, ...]:
    return "convert", "mm-to-hf", "--mm", mm, "--hf-ref", made / "hf", "--hf", out


def saved(change: Callable[[dict[str, Any]], object], **how: Any) -> Breaks:
    """Change what a rank file holds and save it with torch."""

    def breaks(path: Path) -> None:
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path, **how)

    return breaks


def model(**changes: object) -> Breaks:
    """Give `NORM` (as `norm`) or `PROJ` (as `proj`) another value."""
    names = {"norm": NORM, "proj": PROJ}
    return saved(lambda c: c["model"].update({names[k]: v for k, v in changes.items()}))


def archived(compression: Callable[[str], int], pickled: bytes | None = None) -> Breaks:
    """Write the zip again, with another compression or another pickle."""

    def breaks(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            content = [(info.filename, archive.read(info)) for info in archive.infolist()]
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content:
                is_pickle = name.endswith("data.pkl") and pickled is not None
                archive.writestr(name, pickled if is_pickle else data, compression(name))

    return breaks


def pickled(content: bytes) -> Breaks:
    return archived(lambda _: zipfile.ZIP_STORED, content)


def cut(share: float) -> Breaks:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def zeroed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[2000:5000] = bytes(3000)
    path.write_bytes(content)


_REBUILD = b"\x80\x02}Vmodel\n}Va\nctorch._utils\n_rebuild_tensor_v2\n"
FILES = [
    (lambda path: path.write_bytes(b""), "it is no zip file"),
    (lambda path: path.write_bytes(b"hello world"), "it is no zip file"),
    (lambda path: path.write_bytes(b"PK"), "its zip directory cannot be read"),
    (cut(0.5), "its zip directory cannot be read"),
    (cut(0.999), "its zip directory cannot be read"),
    (zeroed, "its zip directory cannot be read (Bad CRC-32"),
    (saved(lambda _: None, _use_new_zipfile_serialization=False), "has torch's old format"),
    (archived(lambda _: zipfile.ZIP_DEFLATED), "or is compressed"),
    (
        archived(lambda name: 0 if name.endswith("pkl") else zipfile.ZIP_DEFLATED),
        "is compressed, cut, or not contiguous",
    ),
    (model(norm=torch.zeros(5, dtype=torch.bfloat16)), f"{NORM} has shape [5], not [32]"),
    (model(norm=torch.zeros((), dtype=torch.bfloat16)), f"{NORM} has shape [], not [32]"),
    (model(norm=torch.zeros(32, dtype=torch.bfloat16)), "1 copies of the same rows differ"),
    (model(norm=torch.zeros(32)), "bf16 (image_encoder.encoder.patch_embed.proj.weight), fp32"),
    (model(norm=torch.zeros(32, dtype=torch.complex64)), f"{NORM!r} has an unknown type"),
    (model(norm=torch.zeros(1, dtype=torch.bfloat16).expand(32)), "not contiguous"),
    (model(proj=torch.zeros(16, 32, dtype=torch.bfloat16).t()), "not contiguous"),
    (
        model(norm=torch.zeros(32).to_sparse()),
        f"1 tensors are missing: mp_rank_01_001 model {NORM}",
    ),
    (model(norm=torch.zeros(32, device="meta")), "1 tensors are missing"),
    (model(norm=None), "1 tensors are missing"),
    (saved(lambda c: c["model"].pop(NORM)), "1 tensors are missing"),
    (saved(lambda c: c["model"].update(foo=torch.zeros(2))), "not of this model: mp_rank_01_001"),
    (saved(lambda c: c.update(state_dict=c.pop("model"))), "the rank file holds no model, only"),
    (saved(lambda c: c.update(model0=c.pop("model"))), "tensors are missing"),
    (saved(lambda c: c.update(model0=c["model"])), "tensors are not of this model"),
    (pickled(b""), "its pickle cannot be read"),
    (pickled(b"\x80\x02}q"), "its pickle cannot be read"),
    (pickled(b"\x80\x02h\x05."), "its pickle cannot be read"),
    (pickled(b"\x80\x09N."), "its pickle cannot be read"),
    (pickled(b"\x80\x02}]Ns."), "its pickle cannot be read"),
    (pickled(b"\x80\x02Vx\nQ."), "its pickle cannot be read"),
    (pickled(b"\x80\x02\x82\x05."), "its pickle cannot be read"),
    (pickled(b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"."), "its pickle cannot be read"),
    (pickled(b"\x80\x02]."), "it holds no table"),
    (pickled(b"\x80\x02" + b"(" * 300_000 + b"t."), "it holds no table"),
    (pickled(_REBUILD + b"(NK\x00NNtRss."), "its pickle cannot be read"),
    (pickled(_REBUILD + b"(NK\x00))tRss."), "damaged"),
    (pickled(b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"."), "cannot be read"),
]


@pytest.mark.parametrize(("breaks", "message"), FILES)
def test_a_damaged_rank_file_is_named(
    breaks: Breaks, message: str, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    breaks(mm / FILE)
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *export(made, mm, out), out=out)
    assert message in said and str(mm) in said


class Call:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize(
    ("function", "name"), [(os.system, "system"), (eval, "eval"), (exec, "exec"), (open, "open")]
)
@pytest.mark.parametrize("command", ["mm-to-hf", "inspect", "verify"])
def test_a_pickled_call_is_refused_by_name_and_never_made(
    function: Callable[..., object],
    name: str,
    command: str,
    made: Path,
    mm: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    mark = tmp_path / "ran"
    code = {"system": f"touch {mark}", "open": str(mark)}.get(name, f"open({str(mark)!r}, 'w')")
    arguments = (code, "w") if name == "open" else (code,)
    saved(lambda content: content.update(args=Call(function, *arguments)))(mm / FILE)
    out = tmp_path / "out"
    commands = {"mm-to-hf": export(made, mm, out), "inspect": ("inspect", mm)}
    said = Refusals(capsys)(3, *commands.get(command, ("verify", mm)), out=out)
    assert f".{name}\n" in said and "the rank file names" in said
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "posix.system", "subprocess.Popen", "builtins.eval", "__builtin__.eval"),
        *("builtins.getattr", "functools.partial", "torchevil.load", "__main__.Thing"),
        *("builtins.dict.__class__", "nt.system", "runpy.run_path", "pickle.loads"),
    ],
)
def test_a_name_outside_the_allowlist_is_refused(
    name: str, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    module, _, attribute = name.partition(".")
    if name.startswith("builtins.dict"):
        module, attribute = "builtins", "dict.__class__"
    pickled(f"c{module}\n{attribute}\n(Vx\ntR.".encode())(mm / FILE)
    out = tmp_path / "out"
    assert f"the rank file names {name}" in Refusals(capsys)(3, *export(made, mm, out), out=out)


@pytest.mark.parametrize("name", ["torch.hub\nload", "torch.serialization\nload", "numpy\nload"])
def test_an_allowed_name_is_never_called(
    name: str, made: Path, mm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the pickled call was made")

    for module in (torch.hub, torch.serialization, np):
        monkeypatch.setattr(module, "load", called)
    saved(lambda c: c.update(args=None))(mm / FILE)
    with zipfile.ZipFile(mm / FILE) as archive:
        (info,) = (i for i in archive.infolist() if i.filename.endswith("data.pkl"))
        original = archive.read(info)
    called_first = original[:2] + f"c{name}\n(Vx\ntR0".encode() + original[2:]
    pickled(called_first)(mm / FILE)
    assert builders.run(*export(made, mm, tmp_path / "out")) == 0


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Enums of modules that exist while pickling and are gone while reading."""
    module = types.ModuleType("megatron.core.enums")
    for name, bases in (
        ("Kind", (enum.Enum,)),
        ("Code", (enum.IntEnum,)),
        ("Text", (str, enum.Enum)),
    ):
        made = enum.Enum(name, {"a": 1}, type=bases[0] if len(bases) > 1 else None)
        if bases == (enum.IntEnum,):
            made = enum.IntEnum(name, {"a": 1})
        made.__module__, made.__qualname__ = module.__name__, name
        setattr(module, name, made)
    for name in ("megatron", "megatron.core"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield vars(module)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_training_checkpoint_is_read_without_its_modules(
    protocol: int, megatron: dict[str, Any], made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    values = [megatron[name].a for name in ("Kind", "Code", "Text")]
    extra = {
        "args": Namespace(
            kinds=values,
            dtype=torch.bfloat16,
            device=torch.device("cpu"),
            size=torch.Size([1]),
            defaults=defaultdict(list, a=[1]),
            queue=deque([1]),
            names={"a", "b"},
            order=OrderedDict(a=1),
        ),
        "rng_state": [
            {
                "random_rng_state": random.getstate(),
                "np_rng_state": np.random.get_state(),
                "torch_rng_state": torch.get_rng_state(),
            }
        ],
        "optimizer": {
            "state": {0: {"exp_avg": torch.zeros(5), "step": np.int64(3)}},
            "param_groups": [{"lr": np.float64(1e-5), "betas": (0.9, 0.95)}],
        },
        "rerun_state_machine": {"mode": values[0], "errors": values},
        "checkpoint_version": 3.0,
        "iteration": 5,
    }
    state = {f"{PROJ.removesuffix('.weight')}._extra_state": None}
    for path in mm.rglob("*.pt"):
        content = torch.load(path, weights_only=True)
        content["model"].update(state)
        torch.save(content | extra, path, pickle_protocol=protocol)
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        del sys.modules[name]
    out = tmp_path / "out"
    assert builders.run(*export(made, mm, out), "--json") == 0
    assert '"count": 4' in capsys.readouterr().out
    original, returned = builders.read_hf(made / "hf"), builders.read_hf(out)
    assert original.keys() == returned.keys()
    assert all((original[name] == returned[name]).all() for name in original)
