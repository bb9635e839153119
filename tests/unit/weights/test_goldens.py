"""What the stock converter wrote (MindSpeed-MM 26.0.0 and 26.1.0), byte for byte.

The recorded outputs are right wherever they are listed here; the stock converter's faults are
covered by test_placement.
"""

import json
from pathlib import Path

import golden_inputs
import pytest
from taskpack.parallel import PipelineSplit
from taskpack.weights import (
    Layout,
    hf_to_mm,
    lora_merge,
    mm_to_hf,
    peft_to_mm,
    read_hf_config,
    resplit,
)

pytestmark = pytest.mark.torch

EXPECTED = json.loads(
    (Path(__file__).parents[2] / "golden" / "stock_converter.json").read_text(encoding="utf-8")
)


def layout(tp: int, text: list, vision: list, **more: object) -> Layout:
    return Layout(tp, PipelineSplit.parse(text), PipelineSplit.parse(vision), **more)


TP1 = layout(1, [4], [4])
TP2_PP2 = layout(2, [1, 3], [4, 0])


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_inputs.make_hf(tmp_path_factory.mktemp("in") / "untied")


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_inputs.make_hf(tmp_path_factory.mktemp("in") / "tied", tied=True)


@pytest.mark.parametrize(
    ("case", "model", "wanted"),
    [
        ("h_untied_tp1pp1", "untied", TP1),
        ("h_untied_tp2pp2", "untied", TP2_PP2),
        ("h_untied_vpp2", "untied", layout(1, [[1, 1], [1, 1]], [[4, 0], [0, 0]])),
        ("h_untied_canon_tp1pp1", "untied", layout(1, [4], [4], canonical=True)),
        ("h_untied_vitonly_tp1pp1", "untied", layout(1, [4], [4], modules=("vision",))),
        ("h_tied_tp1pp1", "tied", TP1),
        ("h_tied_tp1pp2", "tied", layout(1, [1, 3], [4, 0])),
    ],
)
def test_hf_to_mm_writes_what_the_stock_converter_wrote(
    case: str, model: str, wanted: Layout, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    hf_to_mm(request.getfixturevalue(model), tmp_path / "mm", layout=wanted)
    assert golden_inputs.digests(tmp_path / "mm") == EXPECTED[case]


def test_mm_to_hf_writes_what_the_stock_converter_wrote(untied: Path, tmp_path: Path) -> None:
    hf_to_mm(untied, tmp_path / "mm", layout=TP2_PP2)
    mm_to_hf(tmp_path / "mm", untied, tmp_path / "hf")
    found = golden_inputs.digests(tmp_path / "hf")
    assert _tensors(found) == _tensors(EXPECTED["r_untied_tp2pp2"])


def test_resplit_writes_what_the_stock_converter_wrote(untied: Path, tmp_path: Path) -> None:
    hf_to_mm(untied, tmp_path / "tp2", layout=TP2_PP2)
    resplit(tmp_path / "tp2", tmp_path / "tp1", target=TP1)
    assert golden_inputs.digests(tmp_path / "tp1") == EXPECTED["s_tp2pp2_tp1pp1"]


def test_a_canonical_peft_adapter_becomes_what_the_stock_converter_wrote(
    untied: Path, tmp_path: Path
) -> None:
    peft = golden_inputs.make_peft(tmp_path / "peft")
    wanted = layout(1, [4], [4], canonical=True)
    peft_to_mm(peft, read_hf_config(untied), tmp_path / "mm", layout=wanted)
    assert golden_inputs.digests(tmp_path / "mm") == EXPECTED["l_old_tp1pp1"]


def test_merge_writes_what_the_stock_merge_wrote(untied: Path, tmp_path: Path) -> None:
    hf_to_mm(untied, tmp_path / "base", layout=TP2_PP2)
    adapter = golden_inputs.make_fused_adapter(tmp_path / "adapter")
    targets = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    report = lora_merge(
        tmp_path / "base", adapter, tmp_path / "merged", targets=targets, lora={"flags": (16, 8)}
    )
    assert golden_inputs.digests(tmp_path / "merged") == EXPECTED["m_tp2pp2"]
    assert report.scales == [2.0]
    assert sum(report.merged.values()) == 4 * 4 + 2 + 4 * 4


def test_the_merge_does_not_depend_on_how_the_base_is_cut(untied: Path, tmp_path: Path) -> None:
    adapter = golden_inputs.make_fused_adapter(tmp_path / "adapter")
    exported = []
    for name, wanted in (("a", TP1), ("b", TP2_PP2), ("c", layout(4, [2, 2], [4, 0]))):
        hf_to_mm(untied, tmp_path / name, layout=wanted)
        merged = tmp_path / f"{name}_merged"
        lora_merge(tmp_path / name, adapter, merged, lora={"flags": (16, None)})
        mm_to_hf(merged, untied, tmp_path / f"{name}_hf")
        exported.append(_tensors(golden_inputs.digests(tmp_path / f"{name}_hf")))
    assert exported[0] == exported[1] == exported[2]


def _tensors(found: dict) -> dict:
    return {name: record for state in found.values() for name, record in state.items()}
