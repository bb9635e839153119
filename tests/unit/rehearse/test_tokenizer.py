from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from taskpack.errors import ProfileError
from taskpack.rehearse.sample_data import sample_text
from taskpack.rehearse.tokenizer import save_tokenizer

# As in the published tokenizer_config.json.
PUBLISHED = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|vision_pad|>": 151654,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("hf")
    save_tokenizer(folder, text=sample_text(), vocab_size=152064)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.torch
def test_special_tokens_have_their_published_ids(tokenizer: Any) -> None:
    assert {t: tokenizer.convert_tokens_to_ids(t) for t in PUBLISHED} == PUBLISHED
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [151645]
    assert tokenizer.pad_token_id == 151643


@pytest.mark.torch
@pytest.mark.parametrize("text", ["A cat.", "两只猫 🐈", "tab\tand\nnewline", ""])
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.torch
def test_every_id_below_the_specials_exists(tokenizer: Any) -> None:
    assert len(tokenizer) == 151657
    assert tokenizer.convert_ids_to_tokens(151642) is not None


@pytest.mark.torch
def test_the_chat_template_is_the_published_form(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.torch
def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_tokenizer(tmp_path / name, text=sample_text(), vocab_size=152064)
    files = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_a_vocabulary_without_room_for_the_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="a vocabulary of 151656 rows has no row for"):
        save_tokenizer(tmp_path, text=[], vocab_size=151656)
