"""`taskpack data convert --from llava`, through its command line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main
from taskpack.data import OnBad, convert_llava

IMAGE = b"not decoded by the converter"


def row(name: object = "a", **changes: Any) -> dict[str, Any]:
    value = {
        "id": name,
        "image": "photo.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat is it?"},
            {"from": "gpt", "value": "A cat."},
        ],
    }
    value.update(changes)
    return {key: item for key, item in value.items() if item is not ...}


def turns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": text} for speaker, text in pairs]


def save(folder: Path, rows: object, name: str = "rows.json") -> Path:
    (folder / "photo.png").write_bytes(IMAGE)
    path = folder / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def convert(source: Path, *options: str) -> int:
    output = str(source.parent / "out.json")
    return main(["data", "convert", str(source), output, "--from", "llava", *options])


def written(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return rows


def test_turns_become_messages_and_the_image_a_list(tmp_path: Path) -> None:
    assert convert(save(tmp_path, [row()])) == 0
    assert written(tmp_path) == [
        {
            "id": "a",
            "images": ["photo.png"],
            "messages": [
                {"role": "user", "content": "<image>\nWhat is it?"},
                {"role": "assistant", "content": "A cat."},
            ],
        }
    ]


@pytest.mark.parametrize("image", [..., None, "", []])
def test_a_row_without_an_image_is_kept_with_the_same_keys(tmp_path: Path, image: object) -> None:
    text = row(image=image, conversations=turns(("human", "Hello?"), ("gpt", "Hello.")))
    assert convert(save(tmp_path, [text, row("b")])) == 0
    first, second = written(tmp_path)
    assert first["images"] == []
    assert list(first) == list(second)


def test_a_list_of_images_needs_one_marker_each(tmp_path: Path) -> None:
    two = row(
        image=["photo.png", "photo.png"],
        conversations=turns(("human", "<image><image>Same?"), ("gpt", "Yes.")),
    )
    assert convert(save(tmp_path, [two])) == 0
    assert written(tmp_path)[0]["images"] == ["photo.png", "photo.png"]


def test_numbers_become_text_ids_and_missing_ids_the_row_number(tmp_path: Path) -> None:
    assert convert(save(tmp_path, [row(7), row(...)])) == 0
    assert [item["id"] for item in written(tmp_path)] == ["7", "row-1"]


def test_a_system_turn_is_kept_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = turns(("system", "Be brief."), ("human", "<image>What?"), ("gpt", "A cat."))
    assert convert(save(tmp_path, [row(conversations=talk)])) == 0
    assert written(tmp_path)[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "1 with a system message" in capsys.readouterr().out


def test_letters_of_every_script_survive(tmp_path: Path) -> None:
    talk = turns(("human", "<image>这是什么?"), ("gpt", "一只猫 🐈 — é"))
    assert convert(save(tmp_path, [row("名", conversations=talk)])) == 0
    assert written(tmp_path)[0]["messages"][1]["content"] == "一只猫 🐈 — é"
    assert "一只猫" in (tmp_path / "out.json").read_text(encoding="utf-8")


BAD = {
    "wrong_type": [
        row(conversations="text"),
        row(image=3),
        row(image=["photo.png", None]),
        row(1.5),
        "a row",
    ],
    "bad_turns": [
        row(conversations=[]),
        row(conversations=turns(("gpt", "A cat."), ("human", "<image>What?"))),
        row(conversations=turns(("human", "<image>What?"))),
        row(conversations=turns(("human", "<image>What?"), ("robot", "A cat."))),
        row(conversations=turns(("human", "<image>What?"), ("gpt", "  "))),
        row(conversations=[{"from": "human"}, {"from": "gpt", "value": "A cat."}]),
    ],
    "marker_mismatch": [
        row(conversations=turns(("human", "What is it?"), ("gpt", "A cat."))),
        row(image=..., conversations=turns(("human", "<image>What?"), ("gpt", "A cat."))),
        row(conversations=turns(("human", "What?"), ("gpt", "<image>A cat."))),
    ],
    "missing_image": [row(image="absent.png"), row(image=".")],
    "unsupported": [row(video="clip.mp4")],
}


@pytest.mark.parametrize(
    ("kind", "bad"), [(kind, value) for kind, values in BAD.items() for value in values]
)
def test_a_bad_row_is_named_by_number_and_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, bad: object
) -> None:
    assert convert(save(tmp_path, [row(), bad]), "--on-bad", "list", "--json") == 1
    account = json.loads(capsys.readouterr().out)
    assert {(f["row"], f["kind"]) for f in account["findings"]} == {(1, kind)}
    assert not (tmp_path / "out.json").exists()


def test_a_bad_row_stops_the_conversion_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save(tmp_path, [row("good"), row("worse", image="absent.png")])
    assert convert(source) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photo.png", "rows.json"]
    assert capsys.readouterr().err.splitlines() == [
        "error: 1 of 2 rows cannot be converted (1 missing_image)",
        f"  where: {source} row 1 (id worse): image 'absent.png' is not below {tmp_path}",
        "  why:   the trainer stops at such a row, or drops it silently",
        "  fix:   correct them, or leave them out: --on-bad drop (--on-bad list shows them all)",
    ]


def test_every_fault_of_a_row_is_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = row(image="absent.png", conversations=turns(("human", "What?")), video="clip.mp4")
    convert(save(tmp_path, [bad]), "--on-bad", "list", "--json")
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f["kind"] for f in findings] == ["unsupported", "bad_turns", "missing_image"]


def test_dropped_rows_are_counted_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(), row(image="absent.png"), "text", row(conversations=[]), row("b")]
    assert convert(save(tmp_path, rows), "--on-bad", "drop", "--json") == 0
    account = json.loads(capsys.readouterr().out)
    assert account["rows"] == 5
    assert account["written"] == len(written(tmp_path)) == 2
    assert account["dropped"] == {"missing_image": 1, "wrong_type": 1, "bad_turns": 1}


def test_a_file_whose_every_row_is_bad_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(save(tmp_path, ["text"]), "--on-bad", "drop") == 4
    assert "none of 1 rows can be used" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_several_inputs_are_joined_in_order(tmp_path: Path) -> None:
    first, second = save(tmp_path, [row("a")], "1.json"), save(tmp_path, [row("b")], "2.json")
    output = tmp_path / "out.json"
    assert main(["data", "convert", str(first), str(second), str(output), "--from", "llava"]) == 0
    assert [item["id"] for item in written(tmp_path)] == ["a", "b"]


def test_images_are_looked_for_below_the_media_root(tmp_path: Path) -> None:
    source = save(tmp_path, [row()])
    (tmp_path / "media").mkdir()
    (tmp_path / "photo.png").rename(tmp_path / "media" / "photo.png")
    assert convert(source) == 4
    assert convert(source, "--media-root", str(tmp_path / "media")) == 0
    assert written(tmp_path)[0]["images"] == ["photo.png"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('"rows"', "starts with '\"', neither with '[' nor with '{'"),
        ('{"rows": []}', "conversations is None, not a list of turns"),
        ('[{"id": "a"', "is not valid JSON"),
        ("[{'id': 'a'}]", "is not valid JSON"),
        ("", "starts with ''"),
    ],
)
def test_a_file_without_rows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    source = tmp_path / "rows.json"
    source.write_text(content)
    assert convert(source) == 4
    assert message in capsys.readouterr().err


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    source = save(tmp_path, [row()])
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes())
    assert convert(source) == 0


def test_an_absent_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path / "absent.json") == 4
    assert f"there is no file {tmp_path / 'absent.json'}" in capsys.readouterr().err


def test_an_existing_output_is_replaced_only_on_request(tmp_path: Path) -> None:
    source = save(tmp_path, [row()])
    (tmp_path / "out.json").write_text("mine")
    assert convert(source) == 5
    assert (tmp_path / "out.json").read_text() == "mine"
    assert convert(source, "--overwrite") == 0
    assert len(written(tmp_path)) == 1


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    source = save(tmp_path, [row()], "out.json")
    assert convert(source, "--overwrite") == 5
    assert json.loads(source.read_text()) == [row()]


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for count in (20_000, 60_000):
        source = save(tmp_path, [row(str(number)) for number in range(count)], f"{count}.json")
        tracemalloc.start()
        convert_llava([source], tmp_path / f"{count}.out", on_bad=OnBad.FAIL)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2
