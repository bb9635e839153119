"""The formats that rows come in: how each spells turns and media.

A format is a function from one row to a `Draft`; whatever all formats share is judged afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from taskpack.data.draft import Draft
from taskpack.data.parts import join_parts
from taskpack.data.roles import LLAVA_ROLES, ROLES, TOOL_ROLES

Value = Mapping[str, Any]
_ROLE_KEYS = ("from", "role", "speaker", "user")
_SOURCES = (str, bytes, dict)
_UNREAD = frozenset({"audio", "audios", "chosen", "rejected"})
_TEXT_KEYS = ("value", "content", "text")


class Format(Enum):
    """Names of the formats, as `--from` takes them."""

    LLAVA = "llava"
    SHAREGPT = "sharegpt"
    OPENAI = "openai"
    LLAMA_FACTORY = "llama-factory"
    ALPACA = "alpaca"
    MINDSPEED_MM = "mindspeed-mm"
    MS_SWIFT = "ms-swift"
    GEOMETRY3K = "geometry3k"


def detect(value: Value) -> Format | None:
    """Name the format of a row by its keys; None when no format has such rows."""
    keys = value.keys()
    talk = value.get("conversations", value.get("conversation"))
    if isinstance(talk, list):
        if keys & {"images", "videos", "system", "tools"}:
            return Format.LLAMA_FACTORY
        return Format.LLAVA if _is_llava(talk) else Format.SHAREGPT
    if "messages" in keys:
        plain = "images" in keys and "image" not in keys and not _has_parts(value["messages"])
        return Format.MINDSPEED_MM if plain else Format.OPENAI
    if "instruction" in keys and keys & {"output", "response"}:
        return Format.ALPACA
    if "query" in keys and "response" in keys:
        return Format.MS_SWIFT
    if keys & {"problem", "question"} and "answer" in keys:
        return Format.GEOMETRY3K
    return None


def _is_llava(talk: Iterable[Any]) -> bool:
    speakers = [turn.get("from") if isinstance(turn, dict) else None for turn in talk]
    return all(isinstance(speaker, str) and speaker in LLAVA_ROLES for speaker in speakers)


def _has_parts(messages: Any) -> bool:
    turns = messages if isinstance(messages, list) else []
    return any(isinstance(turn, dict) and isinstance(turn.get("content"), list) for turn in turns)


def read_draft(value: Value, form: Format) -> Draft:
    """Read a row of a format, noting everything that is wrong with it."""
    draft = Draft()
    _READERS[form](value, draft)
    return draft


def _llava(value: Value, draft: Draft) -> None:
    _media(value, draft, images=("image", "images"), videos=("video", "videos"))
    _talk(value, draft, keys=("conversations",), roles=LLAVA_ROLES)


def _sharegpt(value: Value, draft: Draft) -> None:
    _media(value, draft, images=("images", "image"), videos=("videos", "video"))
    _system(value, draft)
    _talk(value, draft, keys=("conversations", "conversation", "messages"), roles=ROLES)


def _messages(value: Value, draft: Draft) -> None:
    _media(value, draft, images=("images", "image"), videos=("videos", "video"))
    _talk(value, draft, keys=("messages",), roles=ROLES)


def _swift(value: Value, draft: Draft) -> None:
    draft.markers_optional = True
    _pairs(value, draft, question=("query",), answer=("response",))


def _alpaca(value: Value, draft: Draft) -> None:
    asked = [text for key in ("instruction", "input") if (text := value.get(key))]
    if not all(isinstance(text, str) for text in asked):
        draft.fault("wrong_type", "instruction and input must be text")
        asked = []
    joined = {**value, "instruction": "\n".join(asked)}
    _pairs(joined, draft, question=("instruction",), answer=("output", "response"))


def _question_answer(value: Value, draft: Draft) -> None:
    draft.markers_optional = True
    _pairs(value, draft, question=("problem", "question"), answer=("answer",))


_READERS: dict[Format, Callable[[Value, Draft], None]] = {
    Format.LLAVA: _llava,
    Format.SHAREGPT: _sharegpt,
    Format.OPENAI: _messages,
    Format.LLAMA_FACTORY: _sharegpt,
    Format.ALPACA: _alpaca,
    Format.MINDSPEED_MM: _messages,
    Format.MS_SWIFT: _swift,
    Format.GEOMETRY3K: _question_answer,
}


def _first(value: Value, keys: tuple[str, ...]) -> tuple[str, Any]:
    for key in keys:
        found = value.get(key)
        if found is not None:
            return key, found
    return keys[0], None


def _media(value: Value, draft: Draft, *, images: tuple[str, ...], videos: tuple[str, ...]) -> None:
    for keys, found in ((images, draft.images), (videos, draft.videos)):
        source = value.get(keys[0])
        if type(source) is str and source:  # nearly every row of nearly every file
            found.append(source)
        else:
            found += _listed(*_first(value, keys), draft)
    if _UNREAD.isdisjoint(value):
        return
    if value.get("audios") or value.get("audio"):
        draft.fault("unsupported", "has audio, which the trainer does not read")
    if value.get("chosen") is not None or value.get("rejected") is not None:
        draft.fault("unsupported", "has chosen and rejected answers: preferences, not turns")


def _listed(key: str, value: Any, draft: Draft) -> list[object]:
    if value is None or value == "" or value == []:
        return []
    items = value if isinstance(value, list) else [value]
    good: list[object] = [item for item in items if item and isinstance(item, _SOURCES)]
    if len(good) != len(items):
        shown = repr(value)[:80]
        draft.fault("wrong_type", f"{key} is {shown}, not a path or a list of paths")
    return good


def _system(value: Value, draft: Draft) -> None:
    text = value.get("system")
    if isinstance(text, str) and text:
        draft.turns.append(("system", text))
    elif text:
        draft.fault("wrong_type", f"system is a {type(text).__name__}, not text")


def _pairs(
    value: Value, draft: Draft, *, question: tuple[str, ...], answer: tuple[str, ...]
) -> None:
    _media(value, draft, images=("images", "image"), videos=("videos", "video"))
    _system(value, draft)
    history = value.get("history") or []
    if not isinstance(history, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in history
    ):
        draft.fault("wrong_type", "history is no list of pairs of question and answer")
        history = []
    pairs = [*history, (_first(value, question)[1], _first(value, answer)[1])]
    for number, pair in enumerate(pairs):
        for role, text in zip(("user", "assistant"), pair, strict=True):
            _turn(draft, number * 2 + (role == "assistant"), role, text)


def _talk(value: Value, draft: Draft, *, keys: tuple[str, ...], roles: Mapping[str, str]) -> None:
    key, turns = _first(value, keys)
    if not isinstance(turns, list):
        draft.fault("wrong_type", f"{key} is {repr(turns)[:80]}, not a list of turns")
        return
    if not turns:
        draft.fault("bad_turns", f"{key} has no turns")
    for number, turn in enumerate(turns):
        try:  # nearly every turn of nearly every file
            role, text = roles[turn["from"]], turn["value"]
        except (KeyError, TypeError):
            pass
        else:
            if type(text) is str and text and not text.isspace():
                draft.turns.append((role, text))
                continue
        if not isinstance(turn, dict):
            draft.fault("bad_turns", f"turn {number} is a {type(turn).__name__}, not an object")
            continue
        speaker = _first(turn, _ROLE_KEYS)[1]
        known = roles.get(speaker) if isinstance(speaker, str) else None
        if known is None:
            draft.fault("bad_turns", _unknown_speaker(number, speaker, roles))
        else:
            content = _first(turn, _TEXT_KEYS)[1]
            text = join_parts(content, draft) if isinstance(content, list) else content
            _turn(draft, number, known, text)


def _unknown_speaker(number: int, speaker: object, roles: Mapping[str, str]) -> str:
    if isinstance(speaker, str) and speaker in TOOL_ROLES:
        return f"turn {number} is from {speaker!r}: turns of tools are not trained on"
    return f"turn {number} is from {speaker!r}, not one of {', '.join(roles)}"


def _turn(draft: Draft, number: int, role: str, text: object) -> None:
    if isinstance(text, str) and (text.strip() or role == "system"):
        draft.turns.append((role, text))
    else:
        draft.fault("bad_turns", f"turn {number} of {role} has no text")
