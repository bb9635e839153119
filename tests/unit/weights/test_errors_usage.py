"""Layouts, options and configs that cannot be: refused before anything is written."""

import json
from pathlib import Path

import builders
import pytest
from builders import Refusals

pytestmark = pytest.mark.torch

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.make_hf(tmp_path_factory.mktemp("in") / "hf")


def layout(tp: str = "2", text: str = "[1,3]", vision: str = "[4,0]") -> tuple[str, ...]:
    return "--tp", tp, f"--llm-layers={text}", f"--vit-layers={vision}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (layout(text="[1,2]"), "list [1, 2] sums to 3, but the model has 4 text layers"),
        (layout(vision="[4,4]"), "list [4, 4] sums to 8, but the model has 4 vision layers"),
        (layout(text="[999999999,3]"), "sums to 1000000002"),
        (layout(tp="3"), "size 3 does not divide the 2 query groups"),
        (layout(tp="4"), "size 4 does not divide the 2 query groups"),
        (layout(tp="-2"), "size -2 does not divide the 2 query groups"),
        (layout(tp="1000000"), "size 1000000 does not divide the 2 query groups"),
        (layout(tp="0"), "size 0"),
        ((*layout(), "--vit-tp", "3"), "vision tensor parallel size 3 does not divide"),
        ((*layout(), "--vit-tp", "-1"), "vision tensor parallel size -1 does not divide"),
        (layout(vision="[2,1,1]"), "does not fit the text list [1, 3]"),
        (layout(text="[[1,1],[1,1]]"), "does not fit the text list [[1, 1], [1, 1]]"),
        (("--tp", "2"), "--llm-layers, --vit-layers is missing"),
        ((), "the layout of the output is missing"),
        ((*layout(), "--tp-ranks", "7"), "rank 7 is none of 2 ranks"),
        ((*layout(), "--pp-ranks", "2"), "rank 2 is none of 2 ranks"),
        ((*layout(), "--ranks", "4"), "rank 4 is none of the 4 ranks"),
        ((*layout(), "--ranks", "0", "--world-size", "3"), "no whole number of copies of 4"),
        ((*layout(), "--ranks", "0", "--world-size", "-4"), "-4 ranks hold no whole number"),
        ((*layout(), "--ranks", "0", "--world-size", "0"), "0 ranks hold no whole number"),
    ],
)
def test_an_impossible_layout_is_refused(
    flags: tuple[str, ...], message: str, hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    mm = tmp_path / "mm"
    said = Refusals(capsys)(2, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *flags, out=mm)
    assert message in said


def test_every_fault_of_a_layout_is_told_at_once(hf: Path, tmp_path: Path, capsys: Capture) -> None:
    mm = tmp_path / "mm"
    flags = layout(tp="3", text="[1,2]", vision="[5]")
    said = Refusals(capsys)(2, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *flags, out=mm)
    for words in ("3 does not divide", "[1, 2] sums to 3", "[5] sums to 5", "the vocabulary of 40"):
        assert words in said


@pytest.mark.parametrize(
    "flags",
    [
        layout(tp="two"),
        *(
            layout(text=text)
            for text in (
                *("1,3", "[]", "4", "null", '"abc"', '{"a": 1}', "[1.5,2.5]", "[true,3]"),
                *("[-1,5]", "[[1],[1,2]]", "[1,[3]]", '[1,3,"x"]', "[" * 100_000),
            )
        ),
        (*layout(), "--ranks=-1"),
        (*layout(), "--ranks=a"),
        (*layout(), "--ranks="),
        (*layout(), "--ranks=0,"),
        (*layout(), "--ranks=0", "--pp-ranks=0"),
        (*layout(), "--dtype=int8"),
        (*layout(), "--no-such-flag"),
    ],
)
def test_a_malformed_option_is_refused(
    flags: tuple[str, ...], hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    mm = tmp_path / "mm"
    assert builders.run("convert", "hf-to-mm", "--hf", hf, "--mm", mm, *flags) == 2
    assert "error: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["[4,1.5]", "[4,null]", "[NaN,4]", "[{},4]"])
def test_an_entry_that_is_no_number_is_not_left_out(text: str, hf: Path, tmp_path: Path) -> None:
    assert builders.convert(hf, tmp_path / "mm", *layout("1", text, "[4]")) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ranks", ["5-2", "0-"])
def test_a_range_without_ranks_writes_no_empty_checkpoint(
    ranks: str, hf: Path, tmp_path: Path
) -> None:
    assert builders.convert(hf, tmp_path / "mm", f"--ranks={ranks}") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_negative_number_of_threads_is_refused(hf: Path, tmp_path: Path) -> None:
    assert builders.convert(hf, tmp_path / "mm", "--threads", "-1") == 2


def test_a_layout_is_not_typed_beside_a_task(hf: Path, tmp_path: Path, capsys: Capture) -> None:
    mm = tmp_path / "mm"
    flags = ("--task", tmp_path / "task", "--tp", "2")
    said = Refusals(capsys)(2, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *flags, out=mm)
    assert "--task and layout flags were both given" in said


def test_errors_are_records_with_json(hf: Path, tmp_path: Path, capsys: Capture) -> None:
    flags = layout(tp="3", text="[1,2]")
    arguments = ("--hf", hf, "--mm", tmp_path / "mm", *flags, "--json")
    assert builders.run("convert", "hf-to-mm", *arguments) == 2
    printed = json.loads(capsys.readouterr().out)
    assert printed["exit_code"] == 2 and len(printed["errors"]) > 1
    for record in printed["errors"]:
        assert record.keys() == {"what", "where", "why", "fix"} and all(record.values())


TEXTS = [
    ("", "config.json is not JSON"),
    ("{", "config.json is not JSON"),
    ("[]", "names no model_type"),
    ("{}", "names no model_type"),
    ('{"model_type": ["qwen2_5_vl"]}', "names no model_type"),
    ('{"model_type": "llama"}', "model_type 'llama' is not supported"),
    ("[" * 200_000, "not JSON"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS)
def test_a_damaged_config_is_named(
    text: str, message: str, tmp_path: Path, capsys: Capture
) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    (hf / "config.json").write_text(text)
    said = Refusals(capsys)(3, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *layout(), out=mm)
    assert message in said and str(hf / "config.json") in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "32"),
        ("num_attention_heads", 0),
        ("num_attention_heads", 3),
        ("num_hidden_layers", -4),
        ("vocab_size", None),
        ("vocab_size", True),
        ("vocab_size", 40.5),
        ("vocab_size", float("inf")),
        ("vocab_size", float("nan")),
        ("intermediate_size", [24]),
        ("vision_config", None),
        ("vision_config", [1]),
    ],
)
def test_a_config_value_that_is_no_size_is_named(
    key: str, value: object, tmp_path: Path, capsys: Capture
) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    (hf / "config.json").write_text(json.dumps(builders.config() | {key: value}))
    said = Refusals(capsys)(3, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *layout(), out=mm)
    assert "config.json gives no usable value for" in said and key in said


@pytest.mark.parametrize("value", ["false", 0.5, []])
def test_a_tie_that_is_no_switch_is_named(value: object, tmp_path: Path, capsys: Capture) -> None:
    hf, mm = builders.make_hf(tmp_path / "hf"), tmp_path / "mm"
    config = builders.config() | {"tie_word_embeddings": value}
    (hf / "config.json").write_text(json.dumps(config))
    said = Refusals(capsys)(3, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *layout(), out=mm)
    assert "tie_word_embeddings" in said


@pytest.mark.parametrize("tied", [False, True])
def test_sizes_inside_a_text_config_are_found(tied: bool, tmp_path: Path) -> None:
    hf = builders.make_hf(tmp_path / "hf", tied=tied)
    nested = builders.config(tied=tied)
    outer = {key: nested.pop(key) for key in ("model_type", "vision_config")}
    (hf / "config.json").write_text(json.dumps(outer | {"text_config": nested}))
    plain = builders.make_hf(tmp_path / "plain", tied=tied)
    assert builders.convert(hf, tmp_path / "a") == builders.convert(plain, tmp_path / "b") == 0
    assert builders.tree(tmp_path / "a") == builders.tree(tmp_path / "b")


def test_a_folder_of_zero_size_tables_of_layers_is_quick(hf: Path, tmp_path: Path) -> None:
    stages = 999
    text = f"[4{',0' * (stages - 1)}]"
    assert builders.convert(hf, tmp_path / "mm", *layout("2", text, text), "--pp-ranks", "0") == 0
    assert len(list((tmp_path / "mm" / "release").iterdir())) == 2


@pytest.mark.parametrize("what", ["absent", "a file", "empty"])
def test_a_source_that_is_no_model_is_named(what: str, tmp_path: Path, capsys: Capture) -> None:
    hf, mm = tmp_path / "hf", tmp_path / "mm"
    if what == "a file":
        hf.write_text("weights")
    elif what == "empty":
        hf.mkdir()
    said = Refusals(capsys)(3, "convert", "hf-to-mm", "--hf", hf, "--mm", mm, *layout(), out=mm)
    assert "HF folder" in said and str(hf) in said


@pytest.mark.parametrize(
    "words", ["", "--bogus", "--base_save_dir a --lora_r x", "--lora_target_modules"]
)
def test_the_stock_merge_script_with_wrong_words_is_refused(words: str, capsys: Capture) -> None:
    command = ("mm-convert", "merge_base_lora_weight", *words.split())
    assert "--help" in Refusals(capsys)(2, *command)
