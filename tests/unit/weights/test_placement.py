"""Absolute places, written down by hand from the model's rules.

A round trip cannot see a wrong order that is undone the same way, so these expectations never come
from the engine. The model: 4 text layers of 8 query heads in 4 groups of width 8 (hidden 64, ffn
96), 4 vision layers of 4 heads of width 8 (hidden 32, ffn 40), vocabulary 320.
"""

from pathlib import Path

import addressed
import pytest
import torch
from addressed import columns_of, layout, rank, rows_of
from taskpack.errors import ProfileError
from taskpack.weights import Options, hf_to_mm, mm_to_hf, resplit

pytestmark = pytest.mark.torch

VISION_QKV = "image_encoder.encoder.blocks.layers.0.self_attention.linear_qkv.weight"
EMBEDDING = "text_decoder.embedding.word_embeddings.weight"
HEAD = "text_decoder.output_layer.weight"
NORM = "text_decoder.decoder.final_layernorm.weight"


def run(name: str, start: int, stop: int) -> list[tuple[str, int]]:
    return [(name, row) for row in range(start, stop)]


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return addressed.make_hf(tmp_path_factory.mktemp("in") / "hf")


def text_layers(state: dict[str, torch.Tensor]) -> dict[int, int]:
    """Map each local text layer to the global layer its weights come from."""
    found = {}
    for name, value in state.items():
        if name.endswith("mlp.linear_fc2.weight") and name.startswith("text_decoder"):
            found[int(name.split(".")[3])] = int(rows_of(value)[0][0].split(".")[2])
    return found


def test_fused_qkv_is_two_queries_one_key_one_value_per_group(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(2, [1, 3], [4, 0]))
    name = "text_decoder.decoder.layers.0.self_attention.linear_qkv.weight"
    value = rank(tmp_path / "mm", "mp_rank_01_000")[name]
    attention = "model.layers.0.self_attn"
    q, k, v = (f"{attention}.{which}_proj.weight" for which in "qkv")
    # rank 1 of 2 owns groups 2 and 3; a group has 2 query heads of 8 rows
    assert rows_of(value) == [
        *(*run(q, 32, 48), *run(k, 16, 24), *run(v, 16, 24)),
        *(*run(q, 48, 64), *run(k, 24, 32), *run(v, 24, 32)),
    ]
    bias = rank(tmp_path / "mm", "mp_rank_01_000")[name.replace("weight", "bias")]
    assert [row for _, row in rows_of(bias)] == [row for _, row in rows_of(value)]


def test_fused_vision_qkv_is_query_key_value_per_head(hf: Path, tmp_path: Path) -> None:
    # the stock 2.3.0 leaves these rows stacked, in both directions
    hf_to_mm(hf, tmp_path / "mm", layout=layout(2, [4], [4]))
    qkv = "visual.blocks.0.attn.qkv.weight"
    expected = [
        row
        for head in (2, 3)
        for third in (0, 32, 64)
        for row in run(qkv, third + 8 * head, third + 8 * head + 8)
    ]
    assert rows_of(rank(tmp_path / "mm", "mp_rank_01")[VISION_QKV]) == expected


def test_canonical_vision_qkv_is_a_share_of_each_third(hf: Path, tmp_path: Path) -> None:
    # the stock converter gives rank 0 all queries and half of the keys
    hf_to_mm(hf, tmp_path / "mm", layout=layout(2, [4], [4], canonical=True))
    qkv = "visual.blocks.0.attn.qkv.weight"
    value = rank(tmp_path / "mm", "mp_rank_00")[VISION_QKV]
    assert rows_of(value) == [*run(qkv, 0, 16), *run(qkv, 32, 48), *run(qkv, 64, 80)]


def test_gate_and_up_are_halves_of_every_rank(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(2, [4], [4]))
    state = rank(tmp_path / "mm", "mp_rank_01")
    gate, up = (f"model.layers.2.mlp.{which}_proj.weight" for which in ("gate", "up"))
    value = state["text_decoder.decoder.layers.2.mlp.linear_fc1.weight"]
    assert rows_of(value) == [*run(gate, 48, 96), *run(up, 48, 96)]
    vision = state["image_encoder.encoder.blocks.layers.3.mlp.linear_fc1.bias"]
    gate, up = (f"visual.blocks.3.mlp.{which}_proj.bias" for which in ("gate", "up"))
    assert rows_of(vision) == [*run(gate, 20, 40), *run(up, 20, 40)]


def test_row_parallel_weights_are_cut_along_their_columns(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(2, [4], [4]))
    state = rank(tmp_path / "mm", "mp_rank_01")
    value = state["text_decoder.decoder.layers.1.mlp.linear_fc2.weight"]
    assert columns_of(value) == run("model.layers.1.mlp.down_proj.weight", 48, 96)
    bias = state["image_encoder.projector.encoder.linear_fc2.bias"]
    assert rows_of(bias) == run("visual.merger.mlp.2.bias", 0, 64)


def test_a_stage_without_text_layers_shifts_nothing(hf: Path, tmp_path: Path) -> None:
    # the stock 26.x loses layers when the text list starts with 0
    hf_to_mm(hf, tmp_path / "mm", layout=layout(1, [0, 1, 3], [3, 1, 0]))
    stages = [rank(tmp_path / "mm", f"mp_rank_00_{stage:03d}") for stage in range(3)]
    assert [text_layers(state) for state in stages] == [{}, {0: 0}, {0: 1, 1: 2, 2: 3}]
    assert [EMBEDDING in state for state in stages] == [False, True, False]
    assert [NORM in state and HEAD in state for state in stages] == [False, False, True]
    projector = "image_encoder.projector.layernorm.weight"
    assert [projector in state for state in stages] == [False, True, False]
    patches = "image_encoder.encoder.patch_embed.proj.weight"
    assert [patches in state for state in stages] == [True, False, False]


def test_virtual_stages_run_through_all_stages_before_the_next(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(1, [[0, 1], [2, 1]], [[3, 1], [0, 0]]))
    held = {
        (stage, key): text_layers(rank(tmp_path / "mm", f"mp_rank_00_{stage:03d}", key))
        for stage in (0, 1)
        for key in ("model0", "model1")
    }
    assert held == {
        (0, "model0"): {},
        (1, "model0"): {0: 0},
        (0, "model1"): {0: 1, 1: 2},
        (1, "model1"): {0: 3},
    }
    mm_to_hf(tmp_path / "mm", hf, tmp_path / "hf")
    assert_same(tmp_path / "hf", hf)


def test_a_short_vision_list_puts_the_tower_on_every_stage(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(1, [1, 3], [4]))
    for stage in ("mp_rank_00_000", "mp_rank_00_001"):
        state = rank(tmp_path / "mm", stage)
        tower = [name for name in state if name.startswith("image_encoder.")]
        assert len(tower) == 46
        assert "image_encoder.encoder.blocks.layers.3.input_layernorm.weight" in tower
    mm_to_hf(tmp_path / "mm", hf, tmp_path / "hf")
    assert_same(tmp_path / "hf", hf)


def test_vision_may_have_a_tensor_parallel_size_of_its_own(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=layout(4, [4], [4], vision_tp_size=2))
    qkv = "visual.blocks.0.attn.qkv.weight"
    heads = {0: (0, 1), 1: (2, 3), 2: (0, 1), 3: (2, 3)}
    for tp_rank, owned in heads.items():
        value = rank(tmp_path / "mm", f"mp_rank_{tp_rank:02d}")[VISION_QKV]
        assert {row // 8 % 4 for _, row in rows_of(value)} == set(owned)
        assert {name for name, _ in rows_of(value)} == {qkv}
    mm_to_hf(tmp_path / "mm", hf, tmp_path / "hf")
    assert_same(tmp_path / "hf", hf)


def test_names_of_newer_transformers_are_read_and_written(tmp_path: Path) -> None:
    new = addressed.make_hf(tmp_path / "new", new_names=True)
    hf_to_mm(new, tmp_path / "mm", layout=layout(2, [1, 3], [4, 0]))
    assert len(rank(tmp_path / "mm", "mp_rank_00_001")) == 3 * 7 + 2
    mm_to_hf(tmp_path / "mm", new, tmp_path / "hf")
    assert "model.language_model.norm.weight" in addressed.hf_tensors(tmp_path / "hf")
    assert_same(tmp_path / "hf", new)


def test_an_odd_vocabulary_is_refused_or_padded_with_zeros(tmp_path: Path) -> None:
    odd = addressed.make_hf(tmp_path / "odd", vocab=321)
    wanted = layout(2, [4], [4])
    with pytest.raises(ProfileError, match="size 2 does not divide the vocabulary of 321"):
        hf_to_mm(odd, tmp_path / "mm", layout=wanted)
    assert not (tmp_path / "mm").exists()
    hf_to_mm(odd, tmp_path / "mm", layout=wanted, options=Options(pad_vocab=True))
    last = rank(tmp_path / "mm", "mp_rank_01")[EMBEDDING]
    assert last.shape == (161, 64)
    assert rows_of(last[:-1]) == run("model.embed_tokens.weight", 161, 321)
    assert not last[-1].any()
    mm_to_hf(tmp_path / "mm", odd, tmp_path / "hf")
    assert_same(tmp_path / "hf", odd)


def test_a_tied_head_is_written_on_the_last_of_several_stages_only(tmp_path: Path) -> None:
    tied = addressed.make_hf(tmp_path / "tied", tied=True)
    hf_to_mm(tied, tmp_path / "one", layout=layout(1, [4], [4]))
    assert HEAD not in rank(tmp_path / "one", "mp_rank_00")
    hf_to_mm(tied, tmp_path / "two", layout=layout(1, [1, 3], [4, 0]))
    head = rank(tmp_path / "two", "mp_rank_00_001")[HEAD]
    assert rows_of(head) == run("model.embed_tokens.weight", 0, 320)
    mm_to_hf(tmp_path / "two", tied, tmp_path / "hf")
    assert_same(tmp_path / "hf", tied)


def test_a_canonical_checkpoint_is_resplit_by_its_own_rules(hf: Path, tmp_path: Path) -> None:
    # the stock resplit uses the fused rules and corrupts it
    hf_to_mm(hf, tmp_path / "tp2", layout=layout(2, [1, 3], [4, 0], canonical=True))
    resplit(tmp_path / "tp2", tmp_path / "tp4", target=layout(4, [4], [4], canonical=True))
    qkv = "visual.blocks.0.attn.qkv.weight"
    value = rank(tmp_path / "tp4", "mp_rank_02")[VISION_QKV]
    assert rows_of(value) == [*run(qkv, 16, 24), *run(qkv, 48, 56), *run(qkv, 80, 88)]
    key = rank(tmp_path / "tp4", "mp_rank_02")[
        "text_decoder.decoder.layers.3.self_attention.k_proj.weight"
    ]
    assert rows_of(key) == run("model.layers.3.self_attn.k_proj.weight", 16, 24)


def assert_same(made: Path, original: Path) -> None:
    a, b = addressed.hf_tensors(made), addressed.hf_tensors(original)
    assert a.keys() == b.keys()
    different = [n for n in a if not torch.equal(a[n].view(torch.int32), b[n].view(torch.int32))]
    assert not different
