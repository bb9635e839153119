"""A small tokenizer with Qwen2.5-VL's vocabulary size, special tokens and chat template.

It stands in for the real one where no model folder is at hand: the ids that a script, a json file
or a position code names are exact, everything else is trained on the sample text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from taskpack.errors import ProfileError

BASE_SIZE = 151643
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
LEARNED_SIZE = 768

# The `text` branch also takes the first form of content, a plain string.
CHAT_TEMPLATE = (
    "{% set marks = {'image': '<|image_pad|>', 'video': '<|video_pad|>'} %}"
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in marks %}<|vision_start|>{{ marks[part['type']] }}<|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tokenizer(folder: Path, *, text: Iterable[str], vocab_size: int) -> None:
    """Write a fast tokenizer: learned pieces, then unused ones up to id 151642, then the specials.

    Args:
        folder: The HF folder that gets `tokenizer.json` and `tokenizer_config.json`.
        text: Sentences the pieces are learned from.
        vocab_size: Rows of the model's embedding; the special ids must lie below it.

    Raises:
        ProfileError: The embedding is too small for the special ids.
    """
    if vocab_size < BASE_SIZE + len(SPECIAL_TOKENS):
        raise ProfileError(
            f"a vocabulary of {vocab_size} rows has no row for {SPECIAL_TOKENS[-1]}",
            where="profile (architecture.text.vocab_size)",
            why=f"its id is {BASE_SIZE + len(SPECIAL_TOKENS) - 1} in every Qwen2.5-VL",
            fix="use the model's own vocab_size: 151936 or 152064",
        )
    folder.mkdir(parents=True, exist_ok=True)
    document = _with_exact_ids(_learned(text))
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131072,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))


def _learned(text: Iterable[str]) -> dict[str, object]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    document: dict[str, object] = json.loads(tokenizer.to_str())
    return document


def _with_exact_ids(document: dict[str, object]) -> dict[str, object]:
    """Fill the gap below the first special id, then add the specials at their published ids."""
    model = document["model"]
    assert isinstance(model, dict)
    vocabulary: dict[str, int] = model["vocab"]
    for number in range(len(vocabulary), BASE_SIZE):
        vocabulary[f"unused{number}"] = number
    document["added_tokens"] = [
        {
            "id": BASE_SIZE + offset,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for offset, token in enumerate(SPECIAL_TOKENS)
    ]
    return document
