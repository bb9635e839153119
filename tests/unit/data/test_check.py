"""`taskpack data check`: what the trainer would drop or stop at, row by row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from taskpack.cli import main

REPO = Path(__file__).parents[3]
TASK = "qwen2.5vl-3b"
QUESTION, ANSWER = "<image>\nWhat is it?", "A cat."


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    task = tmp_path / "tasks" / TASK
    task.mkdir(parents=True)
    shutil.copy(REPO / "tasks" / TASK / "profile.yaml", task)
    (tmp_path / "data").mkdir()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(tmp_path / "data" / "cat.png")
    return tmp_path


def row(name: str, **changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": name,
        "images": ["cat.png"],
        "messages": [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": ANSWER},
        ],
    }
    return {**value, **changes}


def talk(*pairs: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": text} for role, text in pairs]


def save(checkout: Path, rows: list[Any], name: str = "rows.json") -> Path:
    path = checkout / "data" / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def set_key(checkout: Path, old: str, new: str) -> None:
    path = checkout / "tasks" / TASK / "profile.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


Result = tuple[int, dict[str, Any]]


def check(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Result:
    task = path.parents[1] / "tasks" / TASK
    code = main(["data", "check", str(path), "--task", str(task), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def kinds(report: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted((finding["row"], finding["kind"]) for finding in report["findings"])


def test_a_nasty_file_gives_each_fault_with_its_row(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (checkout / "data" / "cat.png").read_bytes()
    (checkout / "data" / "cut.png").write_bytes(whole[: len(whole) // 2])
    rows = [
        row("two markers", messages=talk(("user", "<image><image>?"), ("assistant", ANSWER))),
        row("string", images="cat.png"),
        row("in answer", messages=talk(("user", "What?"), ("assistant", "<image> A cat."))),
        row("missing", images=["absent.png"]),
        row("truncated", images=["cut.png"]),
        row("mark"),
        row("gbk", messages=talk(("user", QUESTION), ("assistant", "GBK-HERE"))),
        row("system", messages=talk(("user", QUESTION), ("system", "x"), ("assistant", ANSWER))),
        row("users", messages=talk(("user", QUESTION), ("user", "Well?"))),
        row("empty", images=[], messages=[]),
        row("null", messages=talk(("user", QUESTION), ("assistant", None))),
        row("text", images=[], messages=talk(("user", "Hello?"), ("assistant", "Hello."))),
    ]
    path = save(checkout, [])
    lines = [json.dumps(item).encode() for item in rows]
    lines[5] = b"\xef\xbb\xbf" + lines[5]
    lines[6] = lines[6].replace(b"GBK-HERE", "你好".encode("gbk"))
    path.write_bytes(b"[" + b",\n".join(lines) + b"]")
    code, report = check(path, capsys)
    assert code == 1
    assert kinds(report) == [
        (0, "marker_mismatch"),
        (1, "wrong_type"),
        (2, "marker_mismatch"),
        (3, "missing_image"),
        (4, "broken_image"),
        (5, "broken_json"),
        (6, "not_utf8"),
        (7, "bad_turns"),
        (8, "bad_turns"),
        (9, "bad_turns"),
        (10, "empty_turn"),
    ]
    assert (report["rows"], report["good"], report["bad"]) == (12, 1, 11)
    assert report["counts"]["bad_turns"] == 3
    by_row = {finding["row"]: finding for finding in report["findings"]}
    assert by_row[8]["id"] == "users"
    assert by_row[8]["line"] == 9
    assert path.read_bytes()[by_row[8]["byte"] :].startswith(b'{"id": "users"')
    tried = f"not {checkout / 'data' / 'absent.png'} nor {checkout / 'absent.png'}"
    assert tried in by_row[3]["message"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_good_file_has_no_findings(
    checkout: Path, capsys: pytest.CaptureFixture[str], workers: str
) -> None:
    path = save(checkout, [row(str(number)) for number in range(1200)])
    code, report = check(path, capsys, "--workers", workers)
    assert (code, report["rows"], report["good"]) == (0, 1200, 1200)
    assert report["findings"] == report["problems"] == []
    assert not report["tokens_exact"]


def test_the_files_of_the_profile_are_checked_by_default(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(checkout, [row(str(i)) for i in range(9)], "mllm_format_llava_instruct_data.json")
    assert main(["data", "check", "--task", str(checkout / "tasks" / TASK)]) == 0
    assert capsys.readouterr().out.startswith("9 rows, 9 good, 0 bad")


def test_a_byte_order_mark_at_the_start_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(checkout, [row(str(number)) for number in range(9)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    code, report = check(path, capsys)
    assert (code, kinds(report), report["bad"]) == (1, [(0, "bom")], 1)


def test_rows_with_an_id_of_an_earlier_row_are_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a", "b", "a", "c", "b", "d", "e", "f"]
    _, report = check(save(checkout, [row(name) for name in names]), capsys)
    assert kinds(report) == [(2, "duplicate_id"), (4, "duplicate_id")]
    assert report["bad"] == 2


def test_a_system_message_needs_its_tag_in_the_profile(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = talk(("system", "Be brief."), ("user", QUESTION), ("assistant", ANSWER))
    path = save(checkout, [row(str(number)) for number in range(8)] + [row("s", messages=system)])
    assert kinds(check(path, capsys)[1]) == [(8, "system_tag")]
    set_key(checkout, "media: images", "system_tag: system\n  media: images")
    assert check(path, capsys)[0] == 0


@pytest.mark.parametrize(
    ("size", "kind"),
    [((20, 90), "small_image"), ((6000, 29), "extreme_ratio"), ((28, 5600), None)],
)
def test_images_of_odd_shapes_are_named(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    size: tuple[int, int],
    kind: str | None,
) -> None:
    Image.new("RGB", size).save(checkout / "data" / "cat.png")
    _, report = check(save(checkout, [row("a")]), capsys)
    assert [finding["kind"] for finding in report["findings"]] == ([kind] if kind else [])


def test_a_truncated_picture_of_every_kind_is_found_without_deep(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.png", "a.jpg", "a.webp", "a.gif", "a.bmp"]
    noise = Image.effect_noise((90, 90), 60).convert("RGB")
    for name in names:
        path = checkout / "data" / name
        noise.save(path)
        path.write_bytes(path.read_bytes()[:-600])
    _, report = check(save(checkout, [row(name, images=[name]) for name in names]), capsys)
    assert kinds(report) == [(number, "broken_image") for number in range(len(names))]


def test_damage_in_the_middle_of_a_picture_takes_a_deep_look(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / "data" / "cat.png"
    Image.effect_noise((90, 90), 60).save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    path.write_bytes(data)
    rows = save(checkout, [row(str(number)) for number in range(8)])
    assert check(rows, capsys)[0] == 0
    assert check(rows, capsys, "--deep")[1]["counts"] == {"broken_image": 8}


def test_a_bomb_of_pixels_is_never_decoded(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("1", (20_000, 20_000)).save(checkout / "data" / "cat.png")
    _, report = check(save(checkout, [row("a")]), capsys, "--deep")
    assert kinds(report) == [(0, "image_bomb")]


@pytest.mark.parametrize(
    "name", ["loop", "nul\0.png", "x" * 5000, "no/such/folder.png", ".", "pipe", "/dev/zero"]
)
def test_what_is_no_file_is_a_missing_image(
    checkout: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    import os

    (checkout / "data" / "loop").symlink_to("loop")
    os.mkfifo(checkout / "data" / "pipe")
    _, report = check(save(checkout, [row("a", images=[name])]), capsys)
    assert kinds(report) == [(0, "missing_image")]
    assert len(report["findings"][0]["message"]) < 700


def test_a_path_out_of_the_folder_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = check(save(checkout, [row("a", images=["../../etc/passwd"])]), capsys)
    assert kinds(report) == [(0, "outside_image")]


def test_media_of_the_kind_that_is_not_trained_are_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = check(save(checkout, [row("a", videos=["clip.mp4"])]), capsys)
    assert kinds(report) == [(0, "mixed_media")]


def test_a_cut_through_an_image_is_foreseen(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (500, 500)).save(checkout / "data" / "cat.png")
    four = row(
        "a", images=["cat.png"] * 4, messages=talk(("user", "<image>" * 4), ("assistant", "x"))
    )
    code, report = check(save(checkout, [four] + [row(str(i)) for i in range(8)]), capsys)
    assert (code, kinds(report)) == (1, [(0, "cut_image")])
    # 500 x 500 becomes 504 x 504: 18 x 18 tokens
    assert "1296 of them images" in report["findings"][0]["message"]


def test_long_text_is_counted_as_cut_but_good(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = row("a", messages=talk(("user", QUESTION), ("assistant", "word " * 3000)))
    code, report = check(save(checkout, [long] + [row(str(i)) for i in range(8)]), capsys)
    assert (code, report["cut_rows"], report["findings"]) == (0, 1, [])


def test_sets_that_stop_the_trainer_are_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_key(checkout, "max_samples: null", "max_samples: 50")
    bare = [{"id": "a", "messages": talk(("user", "Hello?"), ("assistant", "Hello."))}]
    code, report = check(save(checkout, bare), capsys)
    found = [problem["kind"] for problem in report["problems"]]
    assert (code, found) == (1, ["too_few_rows", "max_samples", "missing_column"])


def test_bad_rows_are_accepted_up_to_a_number(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(str(number)) for number in range(9)] + [row("a", images=["absent.png"])]
    path = save(checkout, rows)
    assert check(path, capsys, "--max-bad", "1")[0] == 0
    assert check(path, capsys)[0] == 1


def test_bad_rows_and_a_page_are_written_on_request(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(checkout, [row("good"), row("<b>", images=["absent.png"])])
    bad, page = checkout / "bad.jsonl", checkout / "page.html"
    check(path, capsys, "--bad-out", str(bad), "--report", str(page))
    records = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [record["value"]["id"] for record in records] == ["<b>"]
    assert records[0]["findings"][0]["kind"] == "missing_image"
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in text and "<b>" not in text


VIDEOS = {
    "printf '640,480\\n'": None,
    "echo no stream >&2; exit 1": "broken_video",
    "exec sleep 60": "broken_video",
}


@pytest.mark.parametrize("script", VIDEOS)
def test_videos_are_probed_within_a_time_limit(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
) -> None:
    import os

    from taskpack.data import images

    set_key(checkout, "media: images", "media: videos")
    probe = checkout / "bin" / "ffprobe"
    probe.parent.mkdir()
    probe.write_text(f"#!/bin/sh\n{script}\n")
    probe.chmod(0o755)
    monkeypatch.setenv("PATH", f"{probe.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(images, "VIDEO_SECONDS", 0.5)
    (checkout / "data" / "clip.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    (checkout / "data" / "text.mp4").write_bytes(b"no video at all")
    talked = talk(("user", "<video>What?"), ("assistant", ANSWER))
    rows = [
        row(name, images=[], videos=[f"{name}.mp4"], messages=talked) for name in ("clip", "text")
    ]
    _, report = check(save(checkout, rows), capsys)
    kind = VIDEOS[script]
    assert kinds(report) == ([(0, kind)] if kind else []) + [(1, "broken_video")]
