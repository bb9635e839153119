"""Read the stock converter's command line: converter, action and `--cfg.` keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from taskpack.errors import ProfileError, nearest
from taskpack.parallel import PipelineSplit
from taskpack.weights.layout import Layout

CONVERTERS = {"Qwen2_5_VLConverter": "qwen2_5_vl", "Qwen2VLConverter": "qwen2_vl"}

_PARALLEL = ("llm_pp_layers", "vit_pp_layers", "tp_size", "vit_tp_size")
_COMMON = ("enable_canonical_hf_struct", "model_prefix", "new_transformers_weight_key")
FROM_CONFIG = ("num_key_value_heads", "tie_word_embeddings", "llm_num_layers", "vit_num_layers")
_MUST_BE = {
    "parallel_config.ep_size": 1,
    "parallel_config.audio_tp_size": 0,
    "parallel_config.audio_pp_layers": None,
    "common_model_config.num_experts": 0,
    "common_model_config.llm_hf_dir": None,
    "common_model_config.audio_num_layers": None,
    "llm_hf_config": None,
    "llm_hf_config.hf_dir": None,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed command: the converter's family, the action and its keys.

    Attributes:
        family: Family of the converter.
        action: Name of the action.
        keys: Values by dotted key, without `cfg.`.
    """

    family: str
    action: str
    keys: Mapping[str, Any]

    def path(self, key: str) -> Path:
        """Give a required path.

        Raises:
            ProfileError: It is missing.
        """
        value = self.keys.get(key)
        if not isinstance(value, str) or not value:
            raise wrong(f"--cfg.{key}", f"{value!r} is no path", "give the path of a folder")
        return Path(value)

    def flag(self, key: str) -> bool:
        """Give a switch, off by default.

        Raises:
            ProfileError: It is neither true nor false.
        """
        value = self.keys.get(key) or False
        if not isinstance(value, bool):
            raise wrong(f"--cfg.{key}", f"{value!r} is no switch", "use true or false")
        return value

    def layout(self, prefix: str = "parallel_config") -> Layout:
        """Give a layout; the layer lists may be nested or flat.

        Raises:
            ProfileError: A list or a size is missing or malformed.
        """
        return Layout(
            tp_size=self._size(f"{prefix}.tp_size", 1),
            text=self._layers(f"{prefix}.llm_pp_layers"),
            vision=self._layers(f"{prefix}.vit_pp_layers"),
            vision_tp_size=self._size(f"{prefix}.vit_tp_size", 0),
            canonical=self.flag("common_model_config.enable_canonical_hf_struct"),
            modules=("vision",) if self.flag("save_vit_only") else ("vision", "text"),
        )

    def _layers(self, key: str) -> PipelineSplit:
        value = self.keys.get(key)
        try:
            return PipelineSplit.parse(value)  # type: ignore[arg-type] # parse checks the type
        except (ValueError, TypeError):
            raise wrong(
                f"--cfg.{key}", f"{value!r} is no list of layers", "write [[12,16]] or [12,16]"
            ) from None

    def _size(self, key: str, default: int) -> int:
        value = self.keys.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < min(default, 1):
            raise wrong(f"--cfg.{key}", f"{value!r} is no size", "give a whole number")
        return value


def wrong(where: str, what: str, fix: str) -> ProfileError:
    """Give the error for words that the command does not take."""
    return ProfileError(
        what, where=f"mm-convert {where}", why="the stock converter takes it so", fix=fix
    )


def parse_request(arguments: Sequence[str]) -> Request:
    """Read `CONVERTER ACTION --cfg.a.b VALUE ... [--config FILE]`.

    Raises:
        ProfileError: A name or a key is unknown, or a value malformed.
    """
    names: list[str] = []
    keys: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            names.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals:
            if not rest:
                raise wrong(name, f"{name} has no value", f"write {name} VALUE")
            value = rest.pop(0)
        if name == "--config":
            keys |= _from_file(Path(value))
        else:
            keys[name.removeprefix("--cfg.")] = _value(name, value)
    converter, action = _names(names)
    _check_keys(action, keys)
    return Request(CONVERTERS[converter], action, keys)


def _names(names: Sequence[str]) -> tuple[str, str]:
    if len(names) != 2:
        raise wrong("CONVERTER ACTION", f"{list(names)} is not a converter and an action", _USAGE)
    converter, action = names
    if converter not in CONVERTERS:
        raise wrong(converter, f"{converter!r} is not supported", nearest(converter, CONVERTERS))
    if action not in _KEYS:
        raise wrong(action, f"the action {action!r} is not supported", nearest(action, _KEYS))
    return converter, action


_USAGE = "write, for example: mm-convert Qwen2_5_VLConverter hf_to_mm --cfg.mm_dir DIR ..."


def _value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise wrong(name, f"{text!r} cannot be read", "quote the value") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(f"--config {path}", f"the file is no YAML: {error}", "correct it") from None
    if not isinstance(document, dict):
        raise wrong(f"--config {path}", "the file holds no keys", "write a `cfg:` block")
    return dict(_flat("", document.get("cfg", document)))


def _flat(prefix: str, node: object) -> list[tuple[str, Any]]:
    if not isinstance(node, dict):
        return [(prefix, node)]
    return [
        pair
        for key, value in node.items()
        for pair in _flat(f"{prefix}.{key}" if prefix else str(key), value)
    ]


def _check_keys(action: str, keys: Mapping[str, Any]) -> None:
    known = {*_KEYS[action], *_MUST_BE, "trust_remote_code"}
    known |= {f"common_model_config.{name}" for name in (*_COMMON, *FROM_CONFIG)}
    for key, value in keys.items():
        if key not in known:
            hint = nearest(f"--cfg.{key}", [f"--cfg.{name}" for name in sorted(known)])
            raise wrong(f"--cfg.{key}", f"{action} has no key {key!r}", hint)
        if key in _MUST_BE and value not in (_MUST_BE[key], None):
            raise wrong(
                f"--cfg.{key}",
                f"{key} = {value!r} is not supported",
                f"leave it out, or give {_MUST_BE[key]!r}",
            )


def _parallel(prefix: str = "parallel_config") -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in _PARALLEL)


_KEYS: dict[str, tuple[str, ...]] = {
    "hf_to_mm": ("mm_dir", "hf_config.hf_dir", "save_vit_only", *_parallel()),
    "mm_to_hf": ("save_hf_dir", "mm_dir", "hf_config.hf_dir", *_parallel()),
    "resplit": (
        "source_dir",
        "target_dir",
        *_parallel("source_parallel_config"),
        *_parallel("target_parallel_config"),
    ),
    "lora_hf_to_mm": ("mm_dir", "hf_config.hf_dir", "save_vit_only", *_parallel()),
    "lora_mm_to_hf": ("save_hf_dir", "mm_dir", "hf_config.hf_dir", *_parallel()),
}
"""What each action is told; the keys that a model's config.json answers may always be given."""
