"""Adapters that must not be merged: refused by name, and nothing written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import pytest
import torch
from builders import Refusals, run

pytestmark = pytest.mark.torch

FILE = Path("iter_0000003") / "mp_rank_01_001" / "model_optim_rng.pt"
LAYER = "text_decoder.decoder.layers.0"
Change = Callable[[dict[str, torch.Tensor]], object]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `hf` and `base`."""
    folder = tmp_path_factory.mktemp("made")
    assert builders.convert(builders.make_hf(folder / "hf"), folder / "base") == 0
    return folder


def merge(base: Path, adapter: Path, out: Path, *flags: str) -> tuple[object, ...]:
    return "lora", "merge", "--base", base, "--adapter", adapter, "--out", out, *flags


def changed(adapter: Path, change: Change, *, every_rank: bool = False) -> None:
    """Change the adapter tensors of one rank file, or of each."""
    for path in adapter.rglob("*.pt") if every_rank else [adapter / FILE]:
        content = torch.load(path, weights_only=False)
        change(content["model"])
        torch.save(content, path)


@pytest.mark.parametrize(
    ("saved", "flags", "message"),
    [
        (None, (), "nothing tells the alpha of this adapter"),
        ("8", (), "nothing tells the alpha of this adapter"),
        (8.0, ("--alpha", "16"), "alpha is 8 in the adapter's saved arguments but 16 in --alpha"),
        (8.0, ("--r", "8"), "r is 4 in the adapter's saved arguments but 8 in --alpha and --r"),
        (8.0, ("--r", "0"), "but 0 in --alpha and --r"),
        (8.0, ("--targets", "linear_qvk"), "linear_qvk is no module of this family"),
        *((None, (f"--alpha={alpha}", "--r=4"), "alpha") for alpha in ("nan", "inf", "0", "-8")),
        (float("nan"), (), "alpha"),
        (True, (), "alpha"),
    ],
)
def test_a_scale_or_target_that_is_not_sure_is_refused(
    saved: Any,
    flags: tuple[str, ...],
    message: str,
    made: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base", alpha=saved)
    out = tmp_path / "out"
    said = Refusals(capsys)(2, *merge(made / "base", adapter, out, *flags), out=out)
    assert message in said


def factors(state: dict[str, torch.Tensor], which: str) -> list[str]:
    return [name for name in state if f".lora_{which}." in name]


def lost(which: str) -> Change:
    return lambda state: state.pop(factors(state, which)[0])


def spoiled(which: str, value: float) -> Change:
    def change(state: dict[str, torch.Tensor]) -> None:
        name = factors(state, which)[0 if which == "A" else -1]  # not one that ranks repeat
        state[name].view(-1)[3] = value

    return change


def shaped(which: str, *shape: int) -> Change:
    return lambda state: state.update(
        {name: torch.ones(shape, dtype=torch.bfloat16) for name in factors(state, which)}
    )


ADAPTERS = [
    (lost("A"), "1 tensors are missing"),
    (lost("B"), "1 tensors are missing"),
    (spoiled("A", float("nan")), "holds NaN or infinite values"),
    (spoiled("B", float("inf")), "holds NaN or infinite values"),
    (shaped("B", 32, 2), "has shape [32, 2], not [32, 4]"),
    (shaped("A", 4), "has shape [4], not [4, 16]"),
    (shaped("A", 2, 32), "the adapter has the LoRA ranks [2, 4]"),
    (
        lambda state: [state[name].add_(1) for name in factors(state, "A")],
        "copies of the same rows differ",
    ),
    (
        lambda state: state.update({f"{LAYER}.mlp.nope.lora_A.default.weight": torch.ones(4, 32)}),
        "modules that no base weight belongs to: text_decoder.decoder.layers.*.mlp.nope",
    ),
    (shaped("A"), "has shape []"),
    (
        lambda state: state.update({f"{LAYER}.input_layernorm.weight": torch.ones(32)}),
        "input_layernorm",
    ),
]


@pytest.mark.parametrize(("change", "message"), ADAPTERS)
def test_a_damaged_adapter_is_refused(
    change: Change, message: str, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    changed(adapter, change)
    out = tmp_path / "out"
    assert message in Refusals(capsys)(3, *merge(made / "base", adapter, out), out=out)


def test_an_adapter_of_whole_numbers_is_refused(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    changed(
        adapter,
        lambda state: state.update({k: v.to(torch.int32) for k, v in state.items()}),
        every_rank=True,
    )
    out = tmp_path / "out"
    Refusals(capsys)(3, *merge(made / "base", adapter, out), out=out)


def test_a_merge_that_overflows_publishes_nothing(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    changed(adapter, lambda state: [v.fill_(1e30) for v in state.values()], every_rank=True)
    assert run(*merge(made / "base", adapter, tmp_path / "out")) == 3
    assert not (tmp_path / "out").exists()
    assert "infinite" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": 64, "heads": 8, "groups": 4, "ffn": 48},
        {"layers": 2},
    ],
)
def test_an_adapter_of_another_model_is_refused(
    wrong: dict[str, int], made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    hf, base, out = builders.make_hf(tmp_path / "hf", **wrong), tmp_path / "base", tmp_path / "out"
    text = "[1,1]" if "layers" in wrong else "[1,3]"
    flags = ("--tp", "2", f"--llm-layers={text}", "--vit-layers=[4,0]")
    assert builders.convert(hf, base, *flags) == 0
    assert str(adapter) in Refusals(capsys)(3, *merge(base, adapter, out), out=out)


@pytest.mark.parametrize(
    ("base", "adapter", "message"),
    [
        ("base", "base", "there is no adapter here"),
        ("base", "hf", "it holds Hugging Face weights"),
        ("base", "none", "there is no checkpoint folder"),
        ("none", "adapter", "there is no"),
        ("hf", "adapter", "Hugging Face"),
        ("adapter", "adapter", "adapter tensors"),
    ],
)
def test_a_folder_of_another_kind_is_named_for_what_it_is(
    base: str, adapter: str, message: str, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    built = builders.make_adapter(tmp_path / "adapter", made / "base")
    folders = {name: made / name for name in ("base", "hf", "none")} | {"adapter": built}
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *merge(folders[base], folders[adapter], out), out=out)
    assert message in said


@pytest.mark.parametrize(
    ("lost_ranks", "missing"),
    [
        ("mp_rank_01_001", "missing: mp_rank_01_001"),
        ("mp_rank_00_000", "missing: mp_rank_00_000"),
        ("mp_rank_0?_001", "missing: mp_rank_00_001, mp_rank_01_001"),
        ("mp_rank_0?_000", "missing: mp_rank_00_000, mp_rank_01_000"),
    ],
)
def test_missing_rank_files_of_an_adapter_are_named(
    lost_ranks: str, missing: str, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    for folder in adapter.glob(f"iter_0000003/{lost_ranks}"):
        shutil.rmtree(folder)
    out = tmp_path / "out"
    assert missing in Refusals(capsys)(3, *merge(made / "base", adapter, out), out=out)


def test_an_adapter_is_not_merged_twice(made: Path, tmp_path: Path, capsys: Capture) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    assert run(*merge(made / "base", adapter, tmp_path / "merged")) == 0
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *merge(tmp_path / "merged", adapter, out), out=out)
    assert "already merged into the base" in said


def test_an_adapter_is_not_merged_twice_around_a_resplit(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    assert run(*merge(made / "base", adapter, tmp_path / "merged")) == 0
    flags = ("--to-tp", "1", "--to-llm-layers", "[4]", "--to-vit-layers", "[4]")
    again, out = tmp_path / "again", tmp_path / "out"
    assert run("convert", "resplit", "--mm", tmp_path / "merged", "--out", again, *flags) == 0
    Refusals(capsys)(3, *merge(again, adapter, out), out=out)


def test_targets_without_adapter_are_told(made: Path, tmp_path: Path, capsys: Capture) -> None:
    adapter = builders.make_adapter(tmp_path / "adapter", made / "base")
    out = tmp_path / "out"
    said = Refusals(capsys)(
        3, *merge(made / "base", adapter, out, "--targets", "linear_fc1"), out=out
    )
    assert "none of the targets linear_fc1 has an adapter" in said
    flags = ("--targets", "linear_qkv", "linear_fc1", "--json")
    assert run(*merge(made / "base", adapter, out, *flags)) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["absent"], report["left_out"]) == (["linear_fc1"], ["linear_proj"])
