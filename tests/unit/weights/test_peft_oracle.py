"""peft as the judge of adapters: conversions load and give its logits, merges give its weights.

alpha is 12 and r is 4 throughout, so a scale that is taken for 1 shows.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from addressed import layout
from builders import Refusals, run
from real_models import (
    ALPHA,
    R,
    adapted,
    equal,
    even,
    logits,
    real_model,
    tensors_in,
)
from taskpack.errors import CheckFailed, CheckpointError
from taskpack.weights import (
    Layout,
    Options,
    export,
    hf_to_mm,
    lora_merge,
    lora_to_peft,
    mm_to_hf,
    peft_to_mm,
    read_hf_config,
    verify_equal,
    verify_merge,
)
from taskpack.weights.adapter_convert import expanded_peft_to_mm

pytestmark = [pytest.mark.torch, pytest.mark.slow]
Capture = pytest.CaptureFixture[str]
MODELS = [("qwen2_5_vl", False), ("qwen2_5_vl", True), ("qwen2_vl", False), ("qwen2_vl", True)]
GRID = [(tp, pp, kind) for tp in (1, 2, 4) for pp in (1, 2, 4) for kind in ("fused", "canonical")]


class Case:
    """A base, a peft adapter on it, and what peft makes of the two."""

    def __init__(self, root: Path, family: str, *, tied: bool, **settings: Any) -> None:
        dtype = settings.pop("dtype", torch.float32)
        targets = settings.pop("targets", "all")
        equal_a = settings.pop("equal_a", True)
        self.hf, self.peft, self.unloaded = root / "hf", root / "peft", root / "unloaded"
        self.family = family
        self.tied = tied
        real_model(family, tied=tied).to(dtype).save_pretrained(self.hf)
        wrapped = adapted(self.base(), targets, equal_a=equal_a, **settings)
        wrapped.save_pretrained(self.peft)
        self.logits = logits(wrapped)
        wrapped.merge_and_unload().save_pretrained(self.unloaded)

    def base(self) -> Any:
        import transformers

        name = "Qwen2_5_VL" if self.family == "qwen2_5_vl" else "Qwen2VL"
        kind = getattr(transformers, f"{name}ForConditionalGeneration")
        return kind.from_pretrained(self.hf, dtype="auto").eval()

    def loaded(self, folder: Path) -> Any:
        """Load an adapter onto the base; a missing key is an error."""
        from peft import PeftModel

        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*(missing|unexpected).*")
            return PeftModel.from_pretrained(self.base(), folder).eval()

    def cut(self, tp: int, pp: int, kind: str = "fused") -> Layout:
        vision = [2 // min(pp, 2)] * min(pp, 2) + [0] * (pp - 2)
        return layout(tp, list(even(4, pp)), vision, canonical=kind == "canonical")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("fp32"), "qwen2_5_vl", tied=False)


@pytest.fixture(scope="module")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("bf16")
    return Case(root, "qwen2_5_vl", tied=False, dtype=torch.bfloat16)


def close_to_peft(ours: Path, peft: Path) -> None:
    one, two = tensors_in(ours), tensors_in(peft)
    assert one.keys() == two.keys()
    for name, value in one.items():
        limit = 1e-6 * float(two[name].abs().max())
        assert float((value - two[name]).abs().max()) <= limit, name


@pytest.mark.parametrize(("tp", "pp", "kind"), GRID)
def test_every_layout_gives_peft_its_adapter_back_and_one_merge(
    tp: int, pp: int, kind: str, case: Case, tmp_path: Path
) -> None:
    model = read_hf_config(case.hf)
    cut = case.cut(tp, pp, kind)
    peft_to_mm(case.peft, model, tmp_path / "adapter", layout=cut)
    lora_to_peft(tmp_path / "adapter", tmp_path / "back")
    assert equal(tmp_path / "back", case.peft)
    hf_to_mm(case.hf, tmp_path / "base", layout=cut)
    lora_merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "merged")
    mm_to_hf(tmp_path / "merged", case.hf, tmp_path / "hf")
    # the same bits whatever the layout: peft's own merge is close, our export is equal
    export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft)
    assert equal(tmp_path / "hf", tmp_path / "exported")
    close_to_peft(tmp_path / "hf", case.unloaded)


@pytest.mark.parametrize("targets", ["text", "vision", "both", "all", "attention"])
@pytest.mark.parametrize(("family", "tied"), MODELS)
def test_a_converted_adapter_gives_the_logits_of_the_original(
    family: str, tied: bool, targets: str, tmp_path: Path
) -> None:
    case = Case(tmp_path / "case", family, tied=tied, targets=targets)
    model = read_hf_config(case.hf)
    # v without k cannot be fused: a fused module has all of them
    kind = "canonical" if targets == "attention" else "fused"
    peft_to_mm(case.peft, model, tmp_path / "adapter", layout=case.cut(2, 2, kind))
    lora_to_peft(tmp_path / "adapter", tmp_path / "back", model=model)
    assert torch.equal(logits(case.loaded(tmp_path / "back")), case.logits)
    hf_to_mm(case.hf, tmp_path / "base", layout=case.cut(2, 2, kind))
    mm_adapter = tmp_path / "adapter"
    export(tmp_path / "base", case.hf, tmp_path / "exported", adapter_dir=mm_adapter)
    close_to_peft(tmp_path / "exported", case.unloaded)
    proof = verify_merge(tmp_path / "exported", tmp_path / "base", mm_adapter)
    assert proof["max_ulps"] <= 0.5


def test_base_and_adapter_may_be_cut_differently(case: Case, tmp_path: Path) -> None:
    model = read_hf_config(case.hf)
    peft_to_mm(case.peft, model, tmp_path / "adapter", layout=case.cut(1, 4, "canonical"))
    hf_to_mm(case.hf, tmp_path / "base", layout=case.cut(4, 2))
    lora_merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "merged")
    export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft)
    assert verify_equal(tmp_path / "merged", tmp_path / "exported")["equal"]
    # a peft folder merges into rank files too
    lora_merge(tmp_path / "base", case.peft, tmp_path / "from_peft")
    assert verify_equal(tmp_path / "merged", tmp_path / "from_peft")["equal"]


def test_bf16_is_within_one_unit_of_peft(bf16: Case, tmp_path: Path) -> None:
    export(bf16.hf, bf16.hf, tmp_path / "exported", adapter_dir=bf16.peft)
    ours = verify_merge(tmp_path / "exported", bf16.hf, bf16.peft)
    theirs = verify_merge(bf16.unloaded, bf16.hf, bf16.peft, max_ulps=2)
    assert ours["max_ulps"] <= 0.5 and ours["differing_share"] == 0
    # peft keeps factors in fp32 and rounds the sum once, but sums in another order
    assert theirs["max_ulps"] <= 1 and theirs["differing_share"] < 0.01


@pytest.mark.parametrize("kind", ["fused", "canonical"])
def test_unequal_lora_a_is_refused_or_expanded_exactly(
    kind: str, tmp_path: Path, capsys: Capture
) -> None:
    case = Case(tmp_path / "case", "qwen2_5_vl", tied=False, equal_a=False)
    shape = ("--tp", "2", "--llm-layers", "[2,2]", "--vit-layers", "[1,1]")
    command = ("lora", "from-peft", "--peft", case.peft, "--hf-ref", case.hf, *shape)
    mm = tmp_path / "mm"
    if kind == "canonical":
        assert run(*map(str, (*command, "--out", mm, "--canonical"))) == 0
        lora_to_peft(mm, tmp_path / "back")
        assert equal(tmp_path / "back", case.peft)
        return
    said = Refusals(capsys)(3, *command, "--out", mm, out=mm)
    assert "their lora_A differ" in said and "--expand-rank" in said
    assert run(*map(str, (*command, "--out", mm, "--expand-rank"))) == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    lora_to_peft(mm, tmp_path / "back")
    config = json.loads((tmp_path / "back" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3 * R, 3 * ALPHA)
    distance = (logits(case.loaded(tmp_path / "back")) - case.logits).abs().max()
    assert float(distance) < 1e-5  # zeros are added in between: another order of sums
    export(case.hf, case.hf, tmp_path / "expanded", adapter_dir=mm)
    export(case.hf, case.hf, tmp_path / "plain", adapter_dir=case.peft)
    close_to_peft(tmp_path / "expanded", tmp_path / "plain")


def test_expanding_where_only_some_of_a_fused_module_are_adapted(tmp_path: Path) -> None:
    case = Case(tmp_path / "case", "qwen2_5_vl", tied=False, targets="attention", equal_a=False)
    model = read_hf_config(case.hf)
    expanded_peft_to_mm(case.peft, model, tmp_path / "mm", layout=case.cut(2, 2))
    export(case.hf, case.hf, tmp_path / "expanded", adapter_dir=tmp_path / "mm")
    export(case.hf, case.hf, tmp_path / "plain", adapter_dir=case.peft)
    close_to_peft(tmp_path / "expanded", tmp_path / "plain")


def test_rslora_divides_alpha_by_the_root_of_the_rank(tmp_path: Path) -> None:
    case = Case(tmp_path / "case", "qwen2_5_vl", tied=True, use_rslora=True)
    report = export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft)
    assert report.to_json()["scale"] == pytest.approx(ALPHA / R**0.5)
    close_to_peft(tmp_path / "exported", case.unloaded)
    # in rank files the same scale is written as alpha / r
    peft_to_mm(case.peft, read_hf_config(case.hf), tmp_path / "mm", layout=case.cut(2, 2))
    lora_to_peft(tmp_path / "mm", tmp_path / "back")
    assert torch.allclose(logits(case.loaded(tmp_path / "back")), case.logits, atol=1e-6)


def test_the_scale_of_rslora_r_8_alpha_32_is_not_4() -> None:
    from taskpack.weights.peft_config import PeftConfig

    assert round(PeftConfig(8, 32, rslora=True).scale("any", 8), 4) == 11.3137


def test_ranks_and_alphas_by_pattern_are_honoured_in_an_export(
    tmp_path: Path, capsys: Capture
) -> None:
    case = Case(
        tmp_path / "case",
        "qwen2_5_vl",
        tied=False,
        equal_a=False,
        rank_pattern={"layers.1.self_attn.q_proj": 7, "down_proj": 2},
        alpha_pattern={"layers.2.mlp.up_proj": 5, "o_proj": 3},
    )
    report = export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft).to_json()
    assert report["scales"] == [0.75, 1.25, pytest.approx(12 / 7), 3.0, 6.0]
    close_to_peft(tmp_path / "exported", case.unloaded)
    shape = ("--tp", "1", "--llm-layers", "[4]", "--vit-layers", "[2]", "--canonical")
    out = tmp_path / "mm"
    command = ("lora", "from-peft", "--peft", case.peft, "--hf-ref", case.hf, "--out", out, *shape)
    assert "rank_pattern, alpha_pattern" in Refusals(capsys)(3, *command, out=out)


@pytest.mark.parametrize("base", ["hf", "mm"])
def test_a_head_that_was_trained_whole_unties_the_export(
    base: str, tmp_path: Path, capsys: Capture
) -> None:
    case = Case(tmp_path / "case", "qwen2_5_vl", tied=True, targets="text")
    wrapped = adapted(case.base(), "text", equal_a=True, modules_to_save=["lm_head"])
    head = wrapped.base_model.model.lm_head.modules_to_save["default"].weight
    with torch.no_grad():
        head.copy_(torch.randn_like(head))
    wrapped.save_pretrained(tmp_path / "peft")
    wanted = logits(wrapped)
    weights = case.hf
    if base == "mm":
        weights = tmp_path / "mm"
        hf_to_mm(case.hf, weights, layout=case.cut(2, 2))
    export(weights, case.hf, tmp_path / "out", adapter_dir=tmp_path / "peft")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert torch.equal(tensors_in(tmp_path / "out")["lm_head.weight"], head)
    again = type(case.base()).from_pretrained(tmp_path / "out").eval()
    assert torch.allclose(logits(again), wanted, atol=1e-4)
    assert verify_merge(tmp_path / "out", weights, tmp_path / "peft")["max_ulps"] <= 0.5
    # rank files of this base have no place for it
    merged = tmp_path / "merged"
    if base == "mm":
        command = ("lora", "merge", "--base", weights, "--adapter", tmp_path / "peft")
        assert "whole modules: lm_head.weight" in Refusals(capsys)(
            3, *command, "--out", merged, out=merged
        )


@pytest.mark.parametrize(
    "settings", [{"use_dora": True}, {"bias": "lora_only"}, {"trainable_token_indices": [3, 4]}]
)
def test_what_is_not_plain_lora_is_refused_by_name(
    settings: dict[str, Any], case: Case, tmp_path: Path, capsys: Capture
) -> None:
    adapted(case.base(), "text", **settings).save_pretrained(tmp_path / "peft")
    out = tmp_path / "out"
    command = ("export", "--base", case.hf, "--hf-ref", case.hf, "--adapter", tmp_path / "peft")
    said = Refusals(capsys)(3, *command, "--hf", out, out=out)
    assert f"the adapter uses {next(iter(settings))}" in said


def test_verify_finds_a_wrong_scale_a_wrong_row_and_any_other_change(
    bf16: Case, tmp_path: Path, capsys: Capture
) -> None:
    good = tmp_path / "good"
    export(bf16.hf, bf16.hf, good, adapter_dir=bf16.peft)
    command = ("verify", str(good), str(bf16.hf), "--adapter", str(bf16.peft))
    assert run(*command) == 0
    assert "targets are" in capsys.readouterr().out
    wrong = tmp_path / "wrong"
    config = bf16.peft / "adapter_config.json"
    changed = json.loads(config.read_text()) | {"lora_alpha": R}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "adapter_config.json").write_text(json.dumps(changed))
    weights = "adapter_model.safetensors"
    (tmp_path / "other" / weights).write_bytes((bf16.peft / weights).read_bytes())
    export(bf16.hf, bf16.hf, wrong, adapter_dir=tmp_path / "other")
    with pytest.raises(CheckFailed, match="are not base plus delta"):
        verify_merge(wrong, bf16.hf, bf16.peft)
    from safetensors.torch import load_file, save_file

    tensors = load_file(good / "model.safetensors")
    for name, message in (
        ("model.layers.1.mlp.down_proj.weight", "1 targets are not base plus delta"),
        ("model.norm.weight", "1 tensors without an adapter differ"),
    ):
        spoiled = {key: value.clone() for key, value in tensors.items()}
        spoiled[name].view(-1)[5] += 0.5
        save_file(spoiled, wrong / "model.safetensors")
        with pytest.raises(CheckFailed, match=message):
            verify_merge(wrong, bf16.hf, bf16.peft)


def test_an_adapter_is_not_merged_twice(case: Case, tmp_path: Path) -> None:
    model = read_hf_config(case.hf)
    hf_to_mm(case.hf, tmp_path / "base", layout=case.cut(2, 1))
    peft_to_mm(case.peft, model, tmp_path / "adapter", layout=case.cut(2, 1))
    lora_merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "merged")
    for attempt in (
        lambda: lora_merge(tmp_path / "merged", tmp_path / "adapter", tmp_path / "twice"),
        lambda: export(
            tmp_path / "merged", case.hf, tmp_path / "twice", adapter_dir=tmp_path / "adapter"
        ),
    ):
        with pytest.raises(CheckpointError, match="already merged"):
            attempt()
        assert not (tmp_path / "twice").exists()


def test_an_hf_folder_knows_what_was_merged_into_it(case: Case, tmp_path: Path) -> None:
    layout = case.cut(2, 1)
    export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft)
    hf_to_mm(tmp_path / "exported", tmp_path / "mm", layout=layout)
    mm_to_hf(tmp_path / "mm", tmp_path / "exported", tmp_path / "hf")
    export(tmp_path / "mm", case.hf, tmp_path / "hf2")
    peft_to_mm(case.peft, read_hf_config(case.hf), tmp_path / "adapter", layout=layout)
    notes = [(tmp_path / name / "taskpack_merged.json") for name in ("exported", "hf", "hf2")]
    assert notes[0].read_text() == notes[1].read_text() == notes[2].read_text()
    for base, adapter in (
        ("exported", case.peft),
        ("hf", tmp_path / "adapter"),
        ("hf2", case.peft),
    ):
        with pytest.raises(CheckpointError, match="already merged"):
            export(tmp_path / base, case.hf, tmp_path / "twice", adapter_dir=adapter)
    with pytest.raises(CheckpointError, match="already merged"):
        lora_merge(tmp_path / "mm", tmp_path / "adapter", tmp_path / "twice")
    notes[0].write_text('{"adapter": ')
    with pytest.raises(CheckpointError, match="note about a merged adapter is damaged"):
        export(tmp_path / "exported", case.hf, tmp_path / "twice", adapter_dir=case.peft)


def test_a_reference_folder_does_not_hand_on_what_was_merged_into_it(
    case: Case, tmp_path: Path
) -> None:
    export(case.hf, case.hf, tmp_path / "exported", adapter_dir=case.peft)
    export(case.hf, tmp_path / "exported", tmp_path / "plain")
    assert not (tmp_path / "plain" / "taskpack_merged.json").exists()


def test_shards_of_an_export_stay_below_the_limit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskpack.weights.hf_export.SHARD_LIMIT", 300_000)
    export(case.hf, case.hf, tmp_path / "out", adapter_dir=case.peft, options=Options(dtype="bf16"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 1 and files[-1] == f"model-{len(files):05d}-of-{len(files):05d}.safetensors"
    tensors = tensors_in(tmp_path / "out")
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in tensors.values())
    assert tensors.keys() == index["weight_map"].keys()
    assert all((tmp_path / "out" / file).stat().st_size < 340_000 for file in files)
