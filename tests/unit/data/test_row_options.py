"""What the options of `data convert` do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main


def row(name: str, question: str = "<image>What?", images: int = 1) -> dict[str, Any]:
    return {
        "id": name,
        "images": ["a.png"] * images,
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "A cat."},
        ],
    }


def save(folder: Path, rows: list[Any], name: str = "in.json") -> Path:
    (folder / "a.png").write_bytes(b"")
    path = folder / name
    path.write_text(json.dumps(rows))
    return path


def run(source: Path, *options: str, out: str = "out.jsonl") -> int:
    return main(["data", "convert", str(source), str(source.parent / out), *options])


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_shards_joined_are_the_whole(tmp_path: Path) -> None:
    rows: list[Any] = [row(f"{number:04}") for number in range(1001)]
    rows[3] = rows[700] = "bad"
    source = save(tmp_path, rows)
    assert run(source, "--on-bad", "drop") == 0
    whole = (tmp_path / "out.jsonl").read_bytes()
    for part in range(3):
        options = ("--on-bad", "drop", "--shard", f"{part}/3", "--workers", str(part))
        assert run(source, *options, out=f"{part}.jsonl") == 0
    parts = [(tmp_path / f"{part}.jsonl").read_bytes() for part in range(3)]
    assert b"".join(parts) == whole
    assert [part.count(b"\n") for part in parts] == [332, 334, 333]


def test_rows_without_an_id_are_named_alike_by_every_shard(tmp_path: Path) -> None:
    source = save(tmp_path, [{**row("x"), "id": None} for _ in range(10)])
    assert run(source, "--shard", "1/2") == 0
    assert ids(tmp_path / "out.jsonl") == [f"row-{number}" for number in range(5, 10)]


def test_a_shard_of_an_array_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(save(tmp_path, [row("a")]), "--shard", "0/2", out="out.json") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --shard writes lines, and out.json would be an array",
        "  where: --shard",
        "  why:   the shards are joined by cat, which cannot join arrays",
        "  fix:   name it out.jsonl",
    ]


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2", "0/0"])
def test_malformed_shards_are_refused(tmp_path: Path, text: str) -> None:
    assert run(save(tmp_path, [row("a")]), f"--shard={text}") == 2


def test_several_processes_write_the_same_bytes(tmp_path: Path) -> None:
    rows: list[Any] = [row(f"{number}", "<image>" + "x" * number) for number in range(1500)]
    rows[40] = row("bad", "What?")
    source = save(tmp_path, rows)
    for workers in "02":
        options = ("--on-bad", "drop", "--workers", workers)
        assert run(source, *options, out=f"{workers}.json") == 0
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "2.json").read_bytes()
    assert len(json.loads((tmp_path / "2.json").read_text())) == 1499


def test_a_shuffle_keeps_every_row_and_follows_the_seed(tmp_path: Path) -> None:
    names = [str(number) for number in range(50)]
    source = save(tmp_path, [row(name) for name in names])
    orders = []
    for seed in ("1", "1", "2"):
        assert run(source, "--shuffle", "--seed", seed, "--overwrite") == 0
        orders.append(ids(tmp_path / "out.jsonl"))
    assert orders[0] == orders[1] != orders[2] != names
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "in.json", "out.jsonl"]


def test_a_split_shares_out_every_row_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(number) for number in range(400)]
    source = save(tmp_path, [row(name) for name in names])
    assert run(source, "--split", "0.8,0.15,0.05", "--json") == 0
    parts = [ids(tmp_path / f"out_{name}.jsonl") for name in ("train", "val", "test")]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(abs(len(p) / 400 - a) < 0.05 for p, a in zip(parts, (0.8, 0.15, 0.05), strict=True))
    counts = json.loads(capsys.readouterr().out)["outputs"]
    assert list(counts.values()) == [len(part) for part in parts]


@pytest.mark.parametrize("shares", ["0.5,0.4", "1.2,-0.2", "0.7,0.1,0.1,0.1", "a,b"])
def test_shares_that_do_not_add_up_are_refused(tmp_path: Path, shares: str) -> None:
    assert run(save(tmp_path, [row("a")]), "--split", shares) == 2


def test_an_empty_share_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(save(tmp_path, [row("a"), row("b")]), "--split", "0.999,0.001") == 4
    assert "no row fell to out_val.jsonl" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_max_samples_reads_the_first_rows(tmp_path: Path) -> None:
    source = save(tmp_path, [row("a"), row("b"), "never read"])
    assert run(source, "--max-samples", "2") == 0
    assert ids(tmp_path / "out.jsonl") == ["a", "b"]


def test_media_paths_start_from_the_folder_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    source = save(tmp_path / "set", [row("a")])
    assert run(source, "--relative-to", str(tmp_path)) == 0
    line = json.loads((tmp_path / "set" / "out.jsonl").read_text())
    assert line["images"] == ["set/a.png"]
    elsewhere = tmp_path / "elsewhere"
    assert run(source, "--relative-to", str(elsewhere), "--overwrite") == 0
    line = json.loads((tmp_path / "set" / "out.jsonl").read_text())
    assert line["images"] == [str(tmp_path / "set" / "a.png")]


FIXES = [
    ("What?", "<image>\nWhat?", "put 1 <image> before the first question"),
    ("<Image>What?", "<image>What?", "spelled its markers <image>"),
    ("<|vision_start|><|image_pad|><|vision_end|>What?", "<image>What?", "spelled its markers"),
]


@pytest.mark.parametrize(("before", "after", "told"), FIXES)
def test_markers_are_repaired_on_request_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, told: str
) -> None:
    source = save(tmp_path, [row("a", before)])
    assert run(source) == 4
    assert run(source, "--fix") == 0
    line = json.loads((tmp_path / "out.jsonl").read_text())
    assert line["messages"][0]["content"] == after
    captured = capsys.readouterr()
    assert f"in.json row 0: {told}" in captured.err
    assert "1 repaired" in captured.out


def test_a_marker_in_an_answer_is_removed_when_the_questions_have_all(tmp_path: Path) -> None:
    bad = row("a")
    bad["messages"][1]["content"] = "<image> A cat."
    assert run(save(tmp_path, [bad]), "--fix") == 0
    line = json.loads((tmp_path / "out.jsonl").read_text())
    assert [turn["content"] for turn in line["messages"]] == ["<image>What?", "A cat."]


def test_what_could_be_repaired_in_two_ways_is_left_alone(tmp_path: Path) -> None:
    for question, images in (("<image>Same as <image>?", 1), ("<image>What?", 2)):
        assert run(save(tmp_path, [row("a", question, images)]), "--fix") == 4
