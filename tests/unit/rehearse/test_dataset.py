"""What the engine makes of rows, with a tokenizer that spells one id per character."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from taskpack.data.trainer import cut_lengths
from taskpack.errors import DatasetError
from taskpack.rehearse.engine.dataset import (
    IGNORED,
    SampleMaker,
    collate,
    read_rows,
    sample_order,
)

pytestmark = pytest.mark.torch

PAD = "<|image_pad|>"
PAD_ID = 1_000_000
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"


class Speller:
    """One id per character, and one for the image token."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        parts = text.split(PAD)
        ids = [ord(letter) for letter in parts[0]]
        for part in parts[1:]:
            ids += [PAD_ID, *map(ord, part)]
        return ids

    def convert_tokens_to_ids(self, token: str) -> int:
        assert token == PAD
        return PAD_ID


class Patches:
    """Four patches per token, four tokens per image."""

    merge_size = 2

    def __call__(self, images: list[Any], return_tensors: str) -> dict[str, Any]:
        import torch

        assert return_tensors == "pt"
        self.sizes = [image.size for image in images]
        return {
            "pixel_values": torch.zeros(16 * len(images), 6),
            "image_grid_thw": torch.tensor([[1, 4, 4]] * len(images)),
        }


def spelled(ids: list[int]) -> str:
    return "".join(PAD if i == PAD_ID else "_" if i == IGNORED else chr(i) for i in ids)


def document(folder: Path, rows: list[dict[str, Any]], **basic: Any) -> dict[str, Any]:
    (folder / "rows.json").write_text(json.dumps(rows))
    return {
        "dataset_param": {
            "preprocess_parameters": {"image_max_pixels": 400, "image_min_pixels": 0},
            "basic_parameters": {
                "dataset": str(folder / "rows.json"),
                "dataset_dir": str(folder),
                "max_samples": None,
                **basic,
            },
            "attr": {
                "images": "images",
                "messages": "messages",
                "role_tag": "role",
                "content_tag": "content",
                "user_tag": "user",
                "assistant_tag": "assistant",
                "system_tag": basic.get("system_tag"),
            },
        }
    }


def row(*texts: str, images: list[str] | None = None, system: str = "") -> dict[str, Any]:
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return {"id": "a", "images": images or [], "messages": messages}


def photo(folder: Path, size: tuple[int, int] = (40, 40)) -> None:
    from PIL import Image

    Image.new("RGB", size, (9, 9, 9)).save(folder / "photo.png")


def sample(data: dict[str, Any], *, seq_length: int = 4096) -> tuple[str, str]:
    rows, _ = read_rows(data)
    made = SampleMaker(data, Speller(), Patches(), seq_length=seq_length).make(rows[0])
    return spelled(made.input_ids), spelled(made.labels)


def test_only_the_answers_are_labelled(tmp_path: Path) -> None:
    text, labels = sample(document(tmp_path, [row("What?", "A cat.", "Sure?", "Yes.")]))
    first = f"{SYSTEM}<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
    second = "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    assert text == f"{first}A cat.<|im_end|>\n{second}Yes.<|im_end|>\n"
    answers = f"{'_' * len(first)}A cat.<|im_end|>\n{'_' * len(second)}Yes.<|im_end|>\n"
    assert labels == answers


def test_each_marker_becomes_the_tokens_of_its_image(tmp_path: Path) -> None:
    photo(tmp_path)
    text, _ = sample(document(tmp_path, [row("<image>\nWhat?", "A cat.", images=["photo.png"])]))
    assert f"<|vision_start|>{PAD * 4}<|vision_end|>\nWhat?" in text


def test_prompts_count_when_they_are_trained_on(tmp_path: Path) -> None:
    text, labels = sample(document(tmp_path, [row("What?", "A cat.")], train_on_prompt=True))
    assert labels == text


def test_a_masked_history_leaves_the_last_answer(tmp_path: Path) -> None:
    data = document(tmp_path, [row("What?", "A cat.", "Sure?", "Yes.")], mask_history=True)
    text, labels = sample(data)
    assert text.index("A cat.") < text.index("Yes.")
    assert labels.strip("_") == "Yes.<|im_end|>\n"


def test_a_system_message_replaces_the_default_where_it_is_named(tmp_path: Path) -> None:
    rows = [row("What?", "A cat.", system="Be brief.")]
    text, _ = sample(document(tmp_path, rows, system_tag="system"))
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


def test_rows_whose_roles_do_not_alternate_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [row("a", "b"), row("a"), row("a", "b", system="no tag for this"), row("a", "b")]
    kept, dropped = read_rows(document(tmp_path, rows))
    assert [item.number for item in kept] == [0, 3]
    assert dropped == 2


def test_a_file_without_usable_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="none of 1 rows can be used"):
        read_rows(document(tmp_path, [row("a")]))


def test_max_samples_takes_the_first_rows(tmp_path: Path) -> None:
    kept, _ = read_rows(document(tmp_path, [row("a", "b")] * 5, max_samples=2))
    assert len(kept) == 2


def test_too_few_markers_stop_the_run_as_in_the_trainer(tmp_path: Path) -> None:
    photo(tmp_path)
    with pytest.raises(DatasetError) as caught:
        sample(document(tmp_path, [row("What?", "A cat.", images=["photo.png"])]))
    assert caught.value.what == "0 <image> for 1 image(s)"
    assert caught.value.where == "row 0 (id a)"


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_text("no image")
    with pytest.raises(DatasetError, match=r"image 'photo.png' cannot be read"):
        sample(document(tmp_path, [row("<image>?", "A cat.", images=["photo.png"])]))


def test_a_cut_through_an_image_is_refused(tmp_path: Path) -> None:
    photo(tmp_path)
    data = document(tmp_path, [row("<image>What?", "A cat.", images=["photo.png"])])
    with pytest.raises(DatasetError, match="the cut at 100 tokens removes tokens of an image"):
        sample(data, seq_length=100)


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        (10, 5, (10, 5)),
        (90, 20, (80, 20)),  # the answer is short: the prompt gives way
        (20, 90, (20, 80)),  # the prompt is short: the answer gives way
        (100, 100, (50, 50)),  # both are long: in proportion
    ],
)
def test_long_samples_are_cut_as_in_the_trainer(
    source: int, target: int, kept: tuple[int, int]
) -> None:
    assert cut_lengths(source, target, 100) == kept


@pytest.mark.parametrize(
    ("size", "shown"),
    [((40, 40), (28, 28)), ((10, 10), (28, 28)), ((6000, 20), (5040, 28)), ((60, 15), (40, 28))],
)
def test_images_are_brought_into_the_limits(
    tmp_path: Path, size: tuple[int, int], shown: tuple[int, int]
) -> None:
    photo(tmp_path, size)
    data = document(tmp_path, [row("<image>?", "A cat.", images=["photo.png"])])
    data["dataset_param"]["preprocess_parameters"]["image_max_pixels"] = (
        200_000 if size[0] > 1000 else 400
    )
    patches = Patches()
    rows, _ = read_rows(data)
    SampleMaker(data, Speller(), patches, seq_length=4096).make(rows[0])
    assert patches.sizes == [shown]


def test_batches_are_padded_to_a_multiple_of_eight(tmp_path: Path) -> None:
    photo(tmp_path)
    rows = [row("<image>?", "A cat.", images=["photo.png"]), row("a", "b")]
    data = document(tmp_path, rows)
    maker = SampleMaker(data, Speller(), Patches(), seq_length=4096)
    samples = [maker.make(item) for item in read_rows(data)[0]]
    batch = collate(samples, pad_id=7, image_id=PAD_ID)
    assert batch["input_ids"].shape[1] % 8 == 0
    short = len(samples[1].input_ids)
    assert batch["input_ids"][1, short:].unique().tolist() == [7]
    assert batch["labels"][1, short:].unique().tolist() == [IGNORED]
    assert batch["attention_mask"].sum(1).tolist() == [len(s.input_ids) for s in samples]
    assert batch["mm_token_type_ids"].sum(1).tolist() == [4, 0]
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4]]


def test_a_batch_of_text_alone_has_no_pixels(tmp_path: Path) -> None:
    data = document(tmp_path, [row("a", "b")])
    maker = SampleMaker(data, Speller(), Patches(), seq_length=64)
    batch = collate([maker.make(read_rows(data)[0][0])], pad_id=0, image_id=PAD_ID)
    assert "pixel_values" not in batch


def test_each_epoch_has_an_order_of_its_own_without_a_partial_batch() -> None:
    order = sample_order(10, batch=4, seed=1)
    first, second = (list(itertools.islice(order, 8)) for _ in range(2))
    assert len(set(first)) == len(set(second)) == 8
    assert first != second
    assert first == list(itertools.islice(sample_order(10, batch=4, seed=1), 8))


def test_fewer_rows_than_a_batch_are_refused() -> None:
    with pytest.raises(DatasetError, match="3 rows do not fill one batch of 4"):
        next(sample_order(3, batch=4, seed=1))
