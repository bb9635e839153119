"""What `check` calls good, the rehearsal's engine trains on, token for token."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from taskpack.cli import main
from taskpack.data.check import CheckOptions, check
from taskpack.data.check_row import Judged
from taskpack.data.task import open_task
from taskpack.errors import DatasetError

pytestmark = pytest.mark.torch
REPO = Path(__file__).parents[3]
TASK = "qwen2.5vl-3b"
SIZES = [
    (28, 28),
    (64, 48),
    (500, 500),
    (513, 511),
    (1000, 300),
    (5600, 28),
    (29, 5700),
    (700, 900),
]
WORDS = ["cat", "red", "bridge", "什么", "naïve", "<b>", "42", "{x}", "\n"]
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from taskpack.rehearse.tokenizer import save_tokenizer

    root = tmp_path_factory.mktemp("checkout")
    task = root / "tasks" / TASK
    task.mkdir(parents=True)
    shutil.copy(REPO / "tasks" / TASK / "profile.yaml", task)
    (root / "data").mkdir()
    for number, size in enumerate(SIZES):
        Image.new("RGB", size, (number, 90, 200)).save(root / "data" / f"{number}.png")
    profile, _ = open_task(task)
    save_tokenizer(root / profile.hf.dir, text=WORDS, vocab_size=151936)
    config = root / profile.hf.dir / "preprocessor_config.json"
    config.write_text(json.dumps(PROCESSOR))
    return root


def rows(count: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(7)

    def text(most: int) -> str:
        return "a " + " ".join(draw.choices(WORDS, k=draw.randint(1, most)))

    for number in range(count):
        images: list[str] = []
        messages = []
        for _ in range(draw.randint(1, 3)):
            shown = [f"{draw.randrange(len(SIZES))}.png" for _ in range(draw.randint(0, 2))]
            images += shown
            question = text(20) + "<image>" * len(shown) + text(80)
            messages += [
                {"role": "user", "content": question},
                {"role": "assistant", "content": text(draw.choice([5, 400]))},
            ]
        yield {"id": str(number), "images": images, "messages": messages}


def test_check_and_the_engine_agree_on_every_row_and_token(checkout: Path) -> None:
    from taskpack.rehearse.engine.dataset import SampleMaker, read_rows
    from taskpack.rehearse.processor import load_image_processor
    from transformers import AutoTokenizer

    path = checkout / "data" / "rows.json"
    path.write_text(json.dumps(list(rows(120))), encoding="utf-8")
    profile, _ = open_task(checkout / "tasks" / TASK)
    measured: list[Judged] = []
    report = check([path], profile, checkout, CheckOptions(), visit=measured.append)
    assert report.exact
    assert set(report.found.counts) == {"cut_image"}

    hf = checkout / profile.hf.dir
    maker = SampleMaker(
        _data_json(checkout, path),
        AutoTokenizer.from_pretrained(hf),
        load_image_processor(hf),
        seq_length=profile.train.seq_length,
    )
    kept, dropped = read_rows(_data_json(checkout, path))
    assert (len(kept), dropped) == (120, 0)
    lengths, refused = [], set()
    for item in kept:
        try:
            lengths.append(len(maker.make(item).input_ids))
        except DatasetError as error:
            assert "removes tokens of an image" in error.what
            refused.add(item.number)
    assert lengths == [judged.kept for judged in measured]
    assert refused == {finding.row for finding in report.found.kept}
    assert 5 < len(refused) < 100
    assert report.cut_rows > 5


def test_rows_that_check_drops_for_their_roles_are_those_the_engine_drops(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from taskpack.rehearse.engine.dataset import read_rows

    good = next(rows(1))
    user, assistant = good["messages"][:2]
    talks = [[], [user], [user, user], [assistant, user], [user, assistant], None, [assistant] * 2]
    path = checkout / "data" / "roles.json"
    path.write_text(json.dumps([{**good, "images": good["images"], "messages": t} for t in talks]))
    kept, _ = read_rows(_data_json(checkout, path))
    main(["data", "check", str(path), "--task", str(checkout / "tasks" / TASK), "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    dropped = {f["row"] for f in findings if f["kind"] in ("bad_turns", "wrong_type")}
    assert {item.number for item in kept} == set(range(len(talks))) - dropped


def _data_json(checkout: Path, path: Path) -> dict[str, Any]:
    """Render data.json of the task, which is what the trainer reads."""
    out = checkout / "rendered"
    if not out.exists():
        main(["render", TASK, "--out", str(out)])
    data: dict[str, Any] = json.loads((out / "data.json").read_text())
    basic = data["dataset_param"]["basic_parameters"]
    basic["dataset"], basic["dataset_dir"] = str(path), str(checkout / "data")
    return data
