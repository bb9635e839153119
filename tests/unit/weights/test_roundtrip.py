"""Any model in any layout, there and back; and the real model classes as judges."""

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import builders
import golden_inputs
import pytest
import torch
from addressed import hf_tensors, layout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_models import real_model
from safetensors.torch import load_file, save_file
from taskpack.weights import Layout, hf_to_mm, mm_to_hf, read_hf_config, resplit, verify_equal
from taskpack.weights.rows import entries

pytestmark = pytest.mark.torch


def splits(total: int, stages: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, total), min_size=stages - 1, max_size=stages - 1).map(
        lambda cuts: _between([0, *sorted(cuts), total])
    )


def _between(edges: list[int]) -> list[int]:
    return [stop - start for start, stop in pairwise(edges)]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    vpp, pp = draw(st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 2)]))
    text, vision = (draw(splits(4, vpp * pp)) for _ in range(2))
    if vpp > 1:
        text, vision = [text[:pp], text[pp:]], [vision[:pp], vision[pp:]]
    tp = draw(st.sampled_from([1, 2, 4]))
    canonical = draw(st.booleans())
    vision_tp = draw(st.sampled_from([size for size in (1, 2, 4) if tp % size == 0]))
    return layout(tp, text, vision, canonical=canonical, vision_tp_size=vision_tp)


def make_hf(folder: Path, *, family: str, tied: bool) -> Path:
    golden_inputs.make_hf(folder, tied=tied, shards=1)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = family
    config["vision_config"] |= {"embed_dim": 32, "mlp_ratio": 2}
    (folder / "config.json").write_text(json.dumps(config))
    model = read_hf_config(folder)
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries(model.family, model.dims, canonical=True, tied=tied):
        shapes |= entry.tensors
    for stale in folder.glob("model*"):
        stale.unlink()
    tensors = {name: golden_inputs.weight(name, shape) for name, shape in shapes.items()}
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    root = tmp_path_factory.mktemp("in")
    return {
        (family, tied): make_hf(root / f"{family}_{tied}", family=family, tied=tied)
        for family in ("qwen2_5_vl", "qwen2_vl")
        for tied in (False, True)
    }


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(["qwen2_5_vl", "qwen2_vl"]), st.booleans(), layouts(), layouts())
def test_hf_to_any_layout_to_any_other_to_hf_is_identical(
    models: dict[tuple[str, bool], Path],
    tmp_path: Path,
    family: str,
    tied: bool,
    a: Layout,
    b: Layout,
) -> None:
    hf = models[family, tied]
    for name in ("a", "b", "hf"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    hf_to_mm(hf, tmp_path / "a", layout=a)
    resplit(tmp_path / "a", tmp_path / "b", target=b)
    assert verify_equal(tmp_path / "a", tmp_path / "b")["equal"]
    mm_to_hf(tmp_path / "b", hf, tmp_path / "hf")
    assert (tmp_path / "hf" / "model.safetensors").is_file()
    back, original = hf_tensors(tmp_path / "hf"), hf_tensors(hf)
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in back)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen2_vl"])
def test_real_models_give_the_same_logits_after_a_round_trip(
    family: str, tied: bool, tmp_path: Path
) -> None:
    model = real_model(family, tied=tied)
    hf = tmp_path / "hf"
    model.save_pretrained(hf, max_shard_size="200KB")
    # the classes write the nested config of their release; sizes are read from either form
    hf_to_mm(hf, tmp_path / "a", layout=layout(2, [1, 3], [2, 0]))
    resplit(tmp_path / "a", tmp_path / "b", target=layout(1, [[1, 1], [1, 1]], [[2, 0], [0, 0]]))
    mm_to_hf(tmp_path / "b", hf, tmp_path / "back")
    again, info = type(model).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = torch.tensor([[random.Random(3).randrange(20, 300) for _ in range(24)]])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, again(input_ids=ids).logits)
    saved, back = load_all(hf), load_all(tmp_path / "back")
    assert saved.keys() == back.keys()
    assert all(torch.equal(saved[name], back[name]) for name in saved)


def load_all(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(str(path))
    return found


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, int]:
    """Draw the sizes of a model that TP 1, 2 and 4 divide."""
    groups = draw(st.sampled_from([4, 8]))
    heads = groups * draw(st.integers(1, 3))
    vision_heads = draw(st.sampled_from([4, 8]))
    vision = vision_heads * draw(st.sampled_from([2, 4]))
    return {
        "layers": draw(st.integers(1, 5)),
        "depth": draw(st.integers(1, 4)),
        "groups": groups,
        "heads": heads,
        "hidden": heads * draw(st.sampled_from([4, 8])),
        "ffn": 4 * draw(st.integers(1, 9)),
        "vocab": 4 * draw(st.integers(3, 20)),
        "vision_heads": vision_heads,
        "vision": vision,
        "vision_ffn": vision * draw(st.integers(1, 3)),  # Qwen2-VL gives it as a ratio
    }


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_models_of_any_size_come_back_from_any_layout(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("sizes")
    size = data.draw(sizes())
    family = data.draw(st.sampled_from(["qwen2_5_vl", "qwen2_vl"]))
    naming = data.draw(st.sampled_from(["old", "new"]))
    tied = data.draw(st.booleans())
    hf = builders.make_hf(root / "hf", tied=tied, naming=naming, family=family, **size)
    for name in ("a", "b"):
        vpp, pp = data.draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2)]))
        text, vision = (data.draw(splits(size[key], vpp * pp)) for key in ("layers", "depth"))
        if vpp > 1:
            text, vision = [text[:pp], text[pp:]], [vision[:pp], vision[pp:]]
        cut = layout(
            data.draw(st.sampled_from([1, 2, 4])), text, vision, canonical=data.draw(st.booleans())
        )
        if name == "a":
            hf_to_mm(hf, root / "a", layout=cut)
        else:
            resplit(root / "a", root / "b", target=cut)
    mm_to_hf(root / "b", hf, root / "back")
    for shard in hf.glob("*.safetensors"):
        written, original = (builders.read_safetensors(d / shard.name) for d in (root / "back", hf))
        assert written.keys() == original.keys()
        for name, (dtype, raw) in original.items():
            assert written[name][0] == dtype and (written[name][1] == raw).all()
