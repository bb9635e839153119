"""model.json and data.json: what the template says, and what the profile adds to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from taskpack.errors import ProfileError, raise_collected
from taskpack.profile import Profile
from taskpack.profile._section import thaw
from taskpack.profile.json_keys import json_faults
from taskpack.profile.yaml_loader import dotted

CONSTANTS = frozenset({
    "attention_dropout", "attention_softmax_in_fp32", "bias_activation_fusion", "hidden_dropout",
    "init_method_std", "use_fused_rotary_pos_emb",
    "mask_history", "preprocessing_batch_size", "split_special_tokens", "template", "tool_format",
    "train_on_prompt", "use_fast_tokenizer",
    "system", "observation_tag", "function_tag", "messages", "role_tag", "content_tag", "user_tag",
    "assistant_tag", "dataloader_mode", "drop_last", "pin_memory", "sampler_type", "shuffle",
})  # fmt: skip
"""Rendered keys that no key of the profile decides, so that `extra` may replace them."""

FILES = {"model_json": PurePosixPath("model.json"), "data_json": PurePosixPath("data.json")}


def finish_json(file: str, text: str, profile: Profile) -> bytes:
    """Add the profile's extra keys to a rendered json file, and check every key of it.

    Args:
        file: `model_json` or `data_json`.
        text: What the template gave.
        profile: The checked profile.

    Raises:
        ProfileError: An extra key contradicts one that the profile decides, or the release does
            not know a key.
    """
    values = json.loads(text, object_pairs_hook=_each_once)
    extra: Mapping[str, Any] = thaw(getattr(profile.extra, file))
    raise_collected(list(_contradictions(values, extra, (file,))))
    merged = _merge(values, extra)
    faults = json_faults(file, merged, profile.release, (file,))
    raise_collected(
        [fault.to_error(lambda key: f"the profile's {dotted(key)}") for fault in faults]
    )
    return (format_json(merged) + "\n").encode()


def format_json(value: Any, indent: int = 0) -> str:
    """Write JSON with one key a line and every list on the line of its key."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = " " * (indent + 4)
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {format_json(item, indent + 4)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    assert len(made) == len(pairs), "a template names a key twice"
    return made


def _merge(values: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for key, value in extra.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below or {}, value) if both else value
    return merged


def _contradictions(
    values: Mapping[str, Any], extra: Mapping[str, Any], at: tuple[str, ...]
) -> Iterator[ProfileError]:
    for key, value in extra.items():
        given = values.get(key)
        if isinstance(given, Mapping) and isinstance(value, Mapping):
            yield from _contradictions(given, value, (*at, key))
        elif key in values and key not in CONSTANTS and given != value:
            yield ProfileError(
                f"{dotted((*at[1:], key))} is rendered already, as {json.dumps(given)}",
                where=f"the profile's extra.{dotted((*at, key))}",
                why="it follows from another key of the profile, and the files would disagree",
                fix="change that key, or leave this one out",
            )
