"""`taskpack data stats`, `mock` and `geo3k`, through the command line."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from taskpack.cli import main

REPO = Path(__file__).parents[3]
TASK = "qwen2.5vl-7b"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    task = tmp_path / "tasks" / TASK
    task.mkdir(parents=True)
    shutil.copy(REPO / "tasks" / TASK / "profile.yaml", task)
    return tmp_path


def mock(checkout: Path, *options: str) -> Path:
    out = checkout / "data" / "rows.json"
    assert main(["data", "mock", str(out), *options]) == 0
    return out


def stats(checkout: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    words = [str(checkout / "data" / "rows.json"), "--task", str(checkout / "tasks" / TASK)]
    assert main(["data", "stats", *words, "--json", *options]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_mock_rows_pass_the_check(checkout: Path) -> None:
    out = mock(checkout, "--rows", "60", "--sizes", "448x448,300x200", "--images", "2")
    assert main(["data", "check", str(out), "--task", str(checkout / "tasks" / TASK)]) == 0
    rows = json.loads(out.read_text())
    assert rows[0]["images"] == ["rows_media/448x448.jpg", "rows_media/300x200.jpg"]
    with Image.open(checkout / "data" / "rows_media" / "300x200.jpg") as image:
        assert image.size == (300, 200)


def test_the_same_seed_makes_the_same_files(checkout: Path) -> None:
    def files(seed: str) -> dict[str, bytes]:
        mock(checkout, "--rows", "9", "--seed", seed, "--overwrite")
        paths = sorted((checkout / "data").rglob("*.*"))
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    first = files("1")
    assert list(first) == ["rows.json", "448x448.jpg"]
    assert files("1") == first
    assert all(files("2")[name] != first[name] for name in first)


def test_mock_rows_without_pictures_are_text(checkout: Path) -> None:
    out = mock(checkout, "--rows", "3", "--images", "0")
    assert all(row["images"] == [] for row in json.loads(out.read_text()))
    assert list((checkout / "data").iterdir()) == [out]


def test_mock_replaces_nothing_unasked(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = mock(checkout, "--rows", "3")
    assert main(["data", "mock", str(out), "--rows", "4"]) == 5
    assert len(json.loads(out.read_text())) == 3
    assert "is already there" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["448", "0x10", "axb", "10000x3", "1x2x3"])
def test_malformed_sizes_are_refused(checkout: Path, sizes: str) -> None:
    assert main(["data", "mock", str(checkout / "x.json"), "--sizes", sizes]) == 2


def test_stats_count_what_the_trainer_will_see(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mock(checkout, "--rows", "600", "--sizes", "448x448,280x280")
    numbers = stats(checkout, capsys)
    assert (numbers["rows"], numbers["good"]) == (600, 600)
    assert numbers["images_per_row"] == {"1": 600}
    assert numbers["turns"] == {"1": 600}
    assert numbers["sizes"] == {"448x448": 300, "320x320": 300}
    # 16 x 16 and 10 x 10 tokens per image
    assert numbers["visual_share"] == pytest.approx(178 / 262, abs=0.05)
    # global batch: 48 micro batches of 1 on 4 copies
    assert numbers["steps_per_epoch"] == 600 // 192
    assert sum(count for _, count in numbers["tokens"]["histogram"]) == 600
    assert numbers["padding_share"] < 0.03


def test_padding_grows_with_the_micro_batch(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mock(checkout, "--rows", "100", "--sizes", "448x448,112x112", "--words", "1")
    profile = checkout / "tasks" / TASK / "profile.yaml"
    profile.write_text(profile.read_text().replace("micro: 1 ", "micro: 2 "))
    # rows of a and b tokens, half each: a pair is padded to a unless both are b
    tokens = stats(checkout, capsys)["tokens"]["histogram"]
    assert [count for _, count in tokens if count] == [50, 50]
    share = stats(checkout, capsys)["padding_share"]
    assert 0.25 < share < 0.36


def test_stats_draw_a_page_and_a_plot(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mock(checkout, "--rows", "30")
    page, plot = checkout / "out" / "page.html", checkout / "out" / "plot.png"
    stats(checkout, capsys, "--html", str(page), "--png", str(plot))
    text = page.read_text(encoding="utf-8")
    assert text.count("src='data:image/jpeg;base64,") == 12
    assert "steps per epoch" in text
    with Image.open(plot) as image:
        colors = {color for _, color in image.getcolors(10_000) or []}
    assert (0x2F, 0x6F, 0xD0) in colors


def test_stats_of_a_terminal_name_every_number(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = mock(checkout, "--rows", "200")
    capsys.readouterr()
    assert main(["data", "stats", str(out), "--task", str(checkout / "tasks" / TASK)]) == 0
    text = capsys.readouterr().out
    assert "rows                       200, 200 good" in text
    assert "(estimated)" in text
    assert "1 of 192 rows each; train.iters 10000 = 9600.00 epochs" in text


def png(color: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), (color, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def geometry(tmp_path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "geometry3k" / "data"
    folder.mkdir(parents=True)
    for split, count in (("train", 70), ("validation", 2), ("test", 3)):
        rows = [
            {
                "images": [{"bytes": png(number), "path": None}],
                "problem": f"<image>Find x{number}.",
                "answer": f"{number}",
            }
            for number in range(count)
        ]
        name = f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(rows), folder / name)
    return tmp_path / "geometry3k"


def test_geometry3k_becomes_what_the_reward_functions_read(
    geometry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    out = geometry.parent / "rl"
    assert main(["data", "geo3k", str(geometry), str(out), "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert list(outputs.values()) == [70, 3]
    table = pq.read_table(out / "train.parquet")
    assert table.column_names == [
        "data_source", "prompt", "images", "ability", "reward_model", "extra_info",
    ]  # fmt: skip
    row = table.to_pylist()[65]
    assert row["data_source"] == "hiyouga/geometry3k"
    assert row["images"] == [{"bytes": png(65), "path": None}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "65"}
    assert row["extra_info"] == {
        "split": "train", "index": 65, "answer": "65", "question": "<image>Find x65.",
    }  # fmt: skip
    assert row["prompt"][0]["role"] == "user"
    assert row["prompt"][0]["content"].startswith("<image>Find x65. You FIRST think about")
    assert row["prompt"][0]["content"].endswith("final answer MUST BE put in \\boxed{}.")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["images"] == {"feature": {"_type": "Image"}, "_type": "Sequence"}


def test_geometry3k_becomes_messages_with_image_files(geometry: Path) -> None:
    out = geometry.parent / "sft"
    assert main(["data", "geo3k", str(geometry), str(out), "--sft"]) == 0
    rows = json.loads((out / "geo3k_test.json").read_text())
    assert [turn["content"] for turn in rows[2]["messages"]] == ["<image>Find x2.", "2"]
    assert (out / rows[2]["images"][0]).read_bytes() == png(2)


def test_a_folder_without_geometry3k_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "geo3k", str(tmp_path), str(tmp_path / "rl")]) == 4
    assert "has no train-*.parquet" in capsys.readouterr().err


def test_rows_that_are_not_geometry3k_leave_nothing_behind(
    geometry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([{"text": "x"}]), geometry / "data" / "test-1.parquet")
    out = geometry.parent / "rl"
    assert main(["data", "geo3k", str(geometry), str(out)]) == 4
    assert "lacks one of problem, answer, images" in capsys.readouterr().err
    assert list(out.iterdir()) == []
