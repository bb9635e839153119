"""Rows to batches, as the trainer's qwen2vl template and collator make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.data.sources import read_values
from taskpack.data.trainer import (
    IMAGE_MARKER,
    Columns,
    Talk,
    kept_lengths,
    limited_size,
    padded_length,
    read_talk,
    regular_size,
    turn_texts,
)
from taskpack.errors import DatasetError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

IGNORED = -100
IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True, slots=True)
class Row:
    """A row as data.json names its columns."""

    number: int
    id: str
    images: tuple[str, ...]
    talk: Talk


@dataclass(frozen=True, slots=True)
class Sample:
    """A tokenised row: `T` tokens, pixel patches of `P` values, one grid per image."""

    input_ids: list[int]
    labels: list[int]
    pixel_values: torch.Tensor | None
    """[patches, P]"""
    grids: torch.Tensor | None
    """[images, 3]"""


def read_rows(data: Mapping[str, Any]) -> tuple[list[Row], int]:
    """Read every file of data.json.

    Returns:
        The usable rows, and how many the trainer would drop for their roles.

    Raises:
        DatasetError: A file cannot be read, or no row is left.
    """
    basic = _section(data, "basic_parameters")
    columns = Columns.of_attr(_section(data, "attr"))
    limit = basic.get("max_samples")
    rows: list[Row] = []
    dropped = read = 0
    for file in str(basic["dataset"]).split(","):
        for value in read_values(Path(file)):
            if limit is not None and read >= limit:
                break
            row = _row(value, read, columns)
            read += 1
            if row is None:
                dropped += 1
            else:
                rows.append(row)
    if not rows:
        raise DatasetError(
            f"none of {read} rows can be used",
            where=str(basic["dataset"]),
            why="the trainer drops rows whose roles do not alternate from user to assistant",
            fix="convert the file with `taskpack data convert`, or set data.system_tag",
        )
    return rows, dropped


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section: Mapping[str, Any] = data["dataset_param"][name]
    return section


def _row(value: object, number: int, columns: Columns) -> Row | None:
    if not isinstance(value, Mapping):
        return None
    talk = read_talk(value.get(columns.messages), columns)
    if talk is None:
        return None
    images = tuple(value.get(columns.images) or ()) if columns.images else ()
    return Row(number, str(value.get("id", number)), images, talk)


class SampleMaker:
    """Makes samples of rows, one at a time, when they are needed.

    Args:
        data: data.json.
        tokenizer: The model's tokenizer.
        image_processor: The model's image processor.
        seq_length: Tokens; longer samples are cut as the trainer cuts them.
    """

    def __init__(
        self, data: Mapping[str, Any], tokenizer: Any, image_processor: Any, *, seq_length: int
    ) -> None:
        basic, limits = _section(data, "basic_parameters"), _section(data, "preprocess_parameters")
        self._media_root = Path(basic.get("dataset_dir") or "")
        self._train_on_prompt = bool(basic.get("train_on_prompt"))
        self._mask_history = bool(basic.get("mask_history"))
        self._max_pixels = int(limits.get("image_max_pixels", 768 * 768))
        self._min_pixels = int(limits.get("image_min_pixels", 32 * 32))
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self._image_pad = tokenizer.convert_tokens_to_ids(IMAGE_PAD)
        self._seq_length = seq_length

    def make(self, row: Row) -> Sample:
        """Tokenise a row and cut its images into patches.

        Raises:
            DatasetError: Markers and images differ, an image is unreadable, or the cut would
                remove image tokens.
        """
        pixel_values = grids = None
        counts: list[int] = []
        if row.images:
            images = [self._open(row, name) for name in row.images]
            features = self._image_processor(images=images, return_tensors="pt")
            pixel_values, grids = features["pixel_values"], features["image_grid_thw"]
            merged = self._image_processor.merge_size**2
            counts = [int(grid.prod()) // merged for grid in grids]
        input_ids, labels = self._encode(_with_image_tokens(row, counts))
        if input_ids.count(self._image_pad) != sum(counts):
            raise _fault(
                row,
                f"the cut at {self._seq_length} tokens removes tokens of an image",
                "the trainer crashes where image tokens and image features differ in number",
                "raise train.seq_length, or lower data.image_max_pixels",
            )
        return Sample(input_ids, labels, pixel_values, grids)

    def _open(self, row: Row, name: str) -> Image:
        from PIL import Image, UnidentifiedImageError

        path = self._media_root / name
        try:
            with Image.open(path if path.exists() else name) as image:
                return _sized(image, self._max_pixels, self._min_pixels)
        except (OSError, UnidentifiedImageError) as error:
            raise _fault(
                row,
                f"image {name!r} cannot be read ({type(error).__name__})",
                f"it is looked for below data.dir, {self._media_root}",
                "put it there, or leave the row out: taskpack data convert --on-bad drop",
            ) from None

    def _encode(self, talk: Talk) -> tuple[list[int], list[int]]:
        input_ids: list[int] = []
        labels: list[int] = []
        pairs = [(self._ids(prompt), self._ids(answer)) for prompt, answer in turn_texts(talk)]
        if self._mask_history:
            pairs.reverse()  # the last turn comes first, so it is kept
        lengths = kept_lengths([(len(p), len(a)) for p, a in pairs], self._seq_length)
        for (prompt, answer), (source, target) in zip(pairs, lengths, strict=False):
            prompt, answer = prompt[:source], answer[:target]
            hidden = bool(self._mask_history and labels)
            prompt_labels = prompt if self._train_on_prompt else [IGNORED] * source
            turn_labels = [*prompt_labels, *([IGNORED] * target if hidden else answer)]
            if self._mask_history:
                input_ids, labels = [*prompt, *answer, *input_ids], [*turn_labels, *labels]
            else:
                input_ids, labels = [*input_ids, *prompt, *answer], [*labels, *turn_labels]
        return input_ids, labels

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def _with_image_tokens(row: Row, counts: Sequence[int]) -> Talk:
    marks = [question.count(IMAGE_MARKER) for question, _ in row.talk.turns]
    if sum(marks) != len(counts):
        raise _fault(
            row,
            f"{sum(marks)} {IMAGE_MARKER} for {len(counts)} image(s)",
            "the trainer stops at such a row",
            "correct the row, or leave it out: taskpack data convert --on-bad drop",
        )
    left = iter(counts)
    turns = tuple((_replaced(question, left), answer) for question, answer in row.talk.turns)
    return Talk(row.talk.system, turns)


def _replaced(text: str, counts: Iterator[int]) -> str:
    head, *rest = text.split(IMAGE_MARKER)
    blocks = (f"<|vision_start|>{IMAGE_PAD * next(counts)}<|vision_end|>{part}" for part in rest)
    return head + "".join(blocks)


def _sized(image: Image, most: int, least: int) -> Image:
    """Bring an image into the pixel limits of data.json, which come before the processor's."""
    from PIL.Image import Resampling

    limited = limited_size(image.size, most, least)
    if limited != image.size:
        image = image.resize(limited, resample=Resampling.NEAREST)
    image = image.convert("RGB")
    regular = regular_size(limited)
    return image if regular == limited else image.resize(regular)


def collate(samples: Sequence[Sample], *, pad_id: int, image_id: int) -> dict[str, torch.Tensor]:
    """Pad samples on the right to one length, a multiple of eight.

    `mm_token_type_ids` marks image tokens: transformers 5 silently counts positions as text only
    where it is absent.
    """
    import torch

    length = padded_length([len(sample.input_ids) for sample in samples])

    def padded(values: list[int], filler: int) -> list[int]:
        return [*values, *[filler] * (length - len(values))]

    input_ids = torch.tensor([padded(sample.input_ids, pad_id) for sample in samples])
    batch = {
        "input_ids": input_ids,
        "attention_mask": torch.tensor([padded([1] * len(s.input_ids), 0) for s in samples]),
        "labels": torch.tensor([padded(sample.labels, IGNORED) for sample in samples]),
        "mm_token_type_ids": (input_ids == image_id).int(),
    }
    pixels = [sample.pixel_values for sample in samples if sample.pixel_values is not None]
    if pixels:
        grids = [sample.grids for sample in samples if sample.grids is not None]
        batch["pixel_values"], batch["image_grid_thw"] = torch.cat(pixels), torch.cat(grids)
    return batch


def sample_order(rows: int, *, batch: int, seed: int) -> Iterator[int]:
    """Yield row numbers for ever: each epoch another order, its incomplete last batch left out.

    Args:
        rows: Number of rows.
        batch: Samples that all data parallel ranks take at once.
        seed: Seed of the first epoch.

    Raises:
        DatasetError: There are fewer rows than one batch takes.
    """
    import torch

    whole = rows - rows % batch
    if not whole:
        raise DatasetError(
            f"{rows} rows do not fill one batch of {batch}",
            where="data.files",
            why="the trainer divides by the number of whole batches, which is 0",
            fix="use more rows, a smaller batch.micro or fewer nodes",
        )
    epoch = 0
    while True:
        generator = torch.Generator().manual_seed(seed + epoch)
        yield from torch.randperm(rows, generator=generator)[:whole].tolist()
        epoch += 1


def _fault(row: Row, what: str, why: str, fix: str) -> DatasetError:
    return DatasetError(what, where=f"row {row.number} (id {row.id})", why=why, fix=fix)
