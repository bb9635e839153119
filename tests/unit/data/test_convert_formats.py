"""Each format that `data convert` reads, with its exact output."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from taskpack.cli import main


def png(color: int = 9) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (30, 30), (color, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


URI = "data:image/png;base64," + base64.b64encode(png()).decode()


def messages(*texts: str, system: str = "") -> list[dict[str, str]]:
    turns = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]
    return [{"role": "system", "content": system}, *turns] if system else turns


FORMATS: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "llava": [
        (
            {"id": 1, "image": "a.png", "conversations": [
                {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]},
            {"id": "1", "images": ["a.png"], "messages": messages("<image>\nWhat?", "A cat.")},
        ),
    ],
    "sharegpt": [
        (
            {"id": "s", "conversations": [
                {"from": "human", "value": "Hello?"}, {"from": "bard", "value": "Hello."}]},
            {"id": "s", "images": [], "messages": messages("Hello?", "Hello.")},
        ),
        (
            {"id": "t", "conversation": [
                {"role": "user", "text": "Hello?"}, {"role": "chatgpt", "content": "Hello."}]},
            {"id": "t", "images": [], "messages": messages("Hello?", "Hello.")},
        ),
    ],
    "openai": [
        (
            {"messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [
                    {"type": "text", "text": "Which? "},
                    {"type": "image_url", "image_url": {"url": "file://a.png"}},
                    {"type": "image", "image": "b.png"},
                    {"type": "input_text", "text": " and why?"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "The first."}]}]},
            {"id": "row-0", "images": ["a.png", "b.png"], "messages": messages(
                "Which? <image><image> and why?", "The first.", system="Be brief.")},
        ),
        (
            {"id": "plain", "messages": messages("Hello?", "Hello.")},
            {"id": "plain", "images": [], "messages": messages("Hello?", "Hello.")},
        ),
    ],
    "llama-factory": [
        (
            {"conversations": [
                {"from": "human", "value": "<image>Same as <image>?"},
                {"from": "gpt", "value": "Yes."}],
             "images": ["a.png", "b.png"], "system": "Be brief."},
            {"id": "row-0", "images": ["a.png", "b.png"], "messages": messages(
                "<image>Same as <image>?", "Yes.", system="Be brief.")},
        ),
    ],
    "alpaca": [
        (
            {"instruction": "<image>Describe it.", "input": "In a word.", "output": "Cat.",
             "history": [["Hello?", "Hello."]], "images": ["a.png"]},
            {"id": "row-0", "images": ["a.png"], "messages": messages(
                "Hello?", "Hello.", "<image>Describe it.\nIn a word.", "Cat.")},
        ),
    ],
    "mindspeed-mm": [
        (
            {"id": "m", "images": ["a.png"], "messages": messages("<image>What?", "A cat.")},
            {"id": "m", "images": ["a.png"], "messages": messages("<image>What?", "A cat.")},
        ),
    ],
    "ms-swift": [
        (
            {"query": "What?", "response": "A cat.", "images": ["a.png"], "system": "Be brief."},
            {"id": "row-0", "images": ["a.png"], "messages": messages(
                "<image>\nWhat?", "A cat.", system="Be brief.")},
        ),
        (
            {"query": "<image>What?", "response": "A cat.", "images": [{"path": "b.png"}],
             "history": []},
            {"id": "row-1", "images": ["b.png"], "messages": messages("<image>What?", "A cat.")},
        ),
    ],
    "geometry3k": [
        (
            {"problem": "<image>Find x.", "answer": "4", "images": ["a.png"]},
            {"id": "row-0", "images": ["a.png"], "messages": messages("<image>Find x.", "4")},
        ),
    ],
}  # fmt: skip


def run(folder: Path, *words: str) -> int:
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png())
    return main(["data", "convert", *words])


def load(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_becomes_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, given: bool
) -> None:
    source, out = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps([before for before, _ in FORMATS[name]]))
    assert run(tmp_path, str(source), str(out), *(["--from", name] if given else [])) == 0
    assert load(out) == [after for _, after in FORMATS[name]]
    assert (f"in.json: {name} rows, images" in capsys.readouterr().err) is not given


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", [False, True])
def test_arrays_lines_and_gzip_of_both_are_read(tmp_path: Path, packed: bool, lines: bool) -> None:
    rows = [before for before, _ in FORMATS["sharegpt"]]
    text = "\n\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=1)
    source, out = tmp_path / "in.data", tmp_path / "out.json"
    source.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert run(tmp_path, str(source), str(out)) == 0
    assert load(out) == [after for _, after in FORMATS["sharegpt"]]


def test_a_cut_gzip_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.dumps([FORMATS["sharegpt"][0][0]] * 3000).encode()
    (tmp_path / "in.gz").write_bytes(gzip.compress(rows)[:-20])
    assert run(tmp_path, str(tmp_path / "in.gz"), str(tmp_path / "out.json")) == 4
    assert "error: in.gz is not whole" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_patterns_take_files_in_sorted_order(tmp_path: Path) -> None:
    for name in ("2.json", "1.json", "10.json"):
        row = {"id": name, "messages": messages("Hello?", "Hello.")}
        (tmp_path / name).write_text(json.dumps([row]))
    assert run(tmp_path, str(tmp_path / "*.json"), str(tmp_path / "out.jsonl")) == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["1.json", "10.json", "2.json"]


def test_all_absent_inputs_are_named_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / name) for name in ("no.json", "none-*.json", "out.json")]
    assert run(tmp_path, *words) == 4
    assert capsys.readouterr().err.count("there is no file") == 2


def test_files_of_several_formats_become_one(tmp_path: Path) -> None:
    sources = []
    for name in ("alpaca", "llava"):
        sources.append(tmp_path / f"{name}.json")
        sources[-1].write_text(json.dumps([FORMATS[name][0][0]]))
    assert run(tmp_path, *map(str, sources), str(tmp_path / "out.json")) == 0
    assert load(tmp_path / "out.json") == [FORMATS[n][0][1] for n in ("alpaca", "llava")]


def test_rows_of_no_known_format_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.json").write_text('[{"text": "Hello"}]')
    assert run(tmp_path, str(tmp_path / "in.json"), str(tmp_path / "out.json")) == 4
    assert capsys.readouterr().err.splitlines() == [
        "error: the rows of in.json are of no format known here",
        f"  where: {tmp_path / 'in.json'}",
        "  why:   none of the first 1000 has the keys of one",
        f"  fix:   name it: --from {', '.join(FORMATS)}",
    ]


def test_videos_make_a_file_of_videos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"")
    rows = [
        {"id": "v", "messages": messages("<video>What?", "A cat."), "videos": ["clip.mp4"]},
        {"id": "t", "messages": messages("Hello?", "Hello.")},
        {"id": "i", "messages": messages("<image>What?", "A cat."), "images": ["a.png"]},
    ]
    (tmp_path / "in.json").write_text(json.dumps(rows))
    words = [str(tmp_path / "in.json"), str(tmp_path / "out.json"), "--on-bad", "drop"]
    assert run(tmp_path, *words) == 0
    assert load(tmp_path / "out.json") == [
        {**rows[0], "images": [], "videos": ["clip.mp4"]},
        {**rows[1], "images": [], "videos": []},
    ]
    assert "1 bad: 1 unsupported" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["uri", "parquet"])
def test_images_carried_in_rows_become_files(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.json"
    if kind == "uri":
        part = {"type": "image_url", "image_url": {"url": URI}}
        source = tmp_path / "in.json"
        talk = [{"role": "user", "content": [part, part]}, {"role": "assistant", "content": "x"}]
        source.write_text(json.dumps([{"id": "a", "messages": talk}]))
    else:
        source = tmp_path / "in.parquet"
        save_parquet(source, [{"problem": "<image><image>", "answer": "x", "images": [
            {"bytes": png(), "path": None}, {"bytes": png(), "path": "x.png"}]}])  # fmt: skip
    assert run(tmp_path, str(source), str(out)) == 0
    names = load(out)[0]["images"]
    assert names[0] == names[1]
    assert names[0].startswith("out_media/") and names[0].endswith(".png")
    assert (tmp_path / names[0]).read_bytes() == png()
    assert not list(tmp_path.glob("*.partial"))


def save_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_failed_conversion_leaves_no_extracted_images(tmp_path: Path) -> None:
    rows = [
        {"problem": "<image>", "answer": "x", "images": [{"bytes": png(), "path": None}]},
        {"problem": "<image>", "answer": None, "images": []},
    ]
    save_parquet(tmp_path / "in.parquet", rows)
    assert run(tmp_path, str(tmp_path / "in.parquet"), str(tmp_path / "out.json")) == 4
    assert not list(tmp_path.glob("out*"))


def test_a_cut_parquet_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_parquet(tmp_path / "in.parquet", [{"problem": "x", "answer": "y", "images": []}])
    data = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "in.parquet").write_bytes(data[:-30])
    assert run(tmp_path, str(tmp_path / "in.parquet"), str(tmp_path / "out.json")) == 4
    assert "error: in.parquet is not a whole parquet file" in capsys.readouterr().err


MORE_BAD: list[tuple[str, dict[str, Any]]] = [
    ("remote_media", {"query": "<image>?", "response": "x", "images": ["https://host/a.png"]}),
    ("outside_image", {"query": "<image>?", "response": "x", "images": ["../../etc/passwd"]}),
    ("outside_image", {"query": "<image>?", "response": "x", "images": ["/etc/passwd"]}),
    ("missing_image", {"query": "<image>?", "response": "x", "images": ["loop"]}),
    ("missing_image", {"query": "<image>?", "response": "x", "images": ["a\0.png"]}),
    ("missing_image", {"query": "<image>?", "response": "x", "images": ["x" * 5000]}),
    ("broken_image", {"query": "<image>?", "response": "x", "images": ["data:image/png;base64,!"]}),
    ("broken_image", {"query": "<image>?", "response": "x", "images": ["data:;base64,aGVsbG8="]}),
    ("wrong_type", {"query": "<image>?", "response": "x", "images": [{"size": 3}]}),
    ("wrong_type", {"query": "Hello?", "response": "x", "history": [["one"]]}),
    ("wrong_type", {"query": "Hello?", "response": "x", "system": 3}),
    ("bad_turns", {"query": "Hello?", "response": None}),
    ("unsupported", {"query": "Hello?", "response": "x", "audios": ["a.wav"]}),
    ("unsupported", {"query": "Hello?", "response": "x", "rejected": "y"}),
    ("not_utf8", {"query": "Hello \ud83d?", "response": "x"}),
]


@pytest.mark.parametrize(("kind", "bad"), MORE_BAD)
def test_bad_rows_of_other_formats_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, bad: dict[str, Any]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "in.json").write_text(json.dumps([bad, {"query": "Hello?", "response": "x"}]))
    words = [str(tmp_path / "in.json"), str(tmp_path / "out.json"), "--on-bad", "drop", "--json"]
    assert run(tmp_path, *words, "--from", "ms-swift") == 0
    account = json.loads(capsys.readouterr().out)
    assert (account["dropped"], account["written"]) == ({kind: 1}, 1)
    assert len(account["findings"][0]["message"]) < 400


def test_tool_turns_are_refused_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": "{}"}]
    (tmp_path / "in.json").write_text(json.dumps([{"conversations": talk}]))
    assert run(tmp_path, str(tmp_path / "in.json"), str(tmp_path / "out.json")) == 4
    assert "turns of tools are not trained on" in capsys.readouterr().err


def test_the_command_line_offers_every_format() -> None:
    from taskpack.cli._data import FORMATS as offered
    from taskpack.data import Format

    assert list(offered) == [form.value for form in Format] == list(FORMATS)
