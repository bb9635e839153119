"""The stock converter's command line, argument for argument, on top of our conversions.

`mm-convert CONVERTER ACTION --cfg.a.b VALUE ...`, with `--config FILE` for a YAML file of the same
keys. Every key is known by name; one that would change the result and is not supported is refused,
never ignored. `merge_base_lora_weight` stands for the stock merge script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from taskpack.errors import ProfileError, nearest
from taskpack.parallel import PipelineSplit
from taskpack.weights.account import Account
from taskpack.weights.adapter import peft_adapter_infos
from taskpack.weights.adapter_convert import mm_to_peft, peft_to_mm
from taskpack.weights.convert import hf_to_mm, mm_to_hf, resplit
from taskpack.weights.families import FAMILIES
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.layout import Layout
from taskpack.weights.lora_scale import known_alpha
from taskpack.weights.merge import MergeReport, lora_merge
from taskpack.weights.mm_folder import infer_layout, read_mm_folder
from taskpack.weights.peft_config import ADAPTER_CONFIG
from taskpack.weights.rows import Naming
from taskpack.weights.run import Options
from taskpack.weights.shape_dims import guess_model, infer_model

log = logging.getLogger(__name__)

CONVERTERS = {"Qwen2_5_VLConverter": "qwen2_5_vl", "Qwen2VLConverter": "qwen2_vl"}

_PARALLEL = ("llm_pp_layers", "vit_pp_layers", "tp_size", "vit_tp_size")
_COMMON = ("enable_canonical_hf_struct", "model_prefix", "new_transformers_weight_key")
_FROM_CONFIG = ("num_key_value_heads", "tie_word_embeddings", "llm_num_layers", "vit_num_layers")
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
            raise _wrong(f"--cfg.{key}", f"{value!r} is no path", "give the path of a folder")
        return Path(value)

    def flag(self, key: str) -> bool:
        """Give a switch, off by default.

        Raises:
            ProfileError: It is neither true nor false.
        """
        value = self.keys.get(key) or False
        if not isinstance(value, bool):
            raise _wrong(f"--cfg.{key}", f"{value!r} is no switch", "use true or false")
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
            raise _wrong(
                f"--cfg.{key}", f"{value!r} is no list of layers", "write [[12,16]] or [12,16]"
            ) from None

    def _size(self, key: str, default: int) -> int:
        value = self.keys.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < min(default, 1):
            raise _wrong(f"--cfg.{key}", f"{value!r} is no size", "give a whole number")
        return value


def _wrong(where: str, what: str, fix: str) -> ProfileError:
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
                raise _wrong(name, f"{name} has no value", f"write {name} VALUE")
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
        raise _wrong("CONVERTER ACTION", f"{list(names)} is not a converter and an action", _USAGE)
    converter, action = names
    if converter not in CONVERTERS:
        raise _wrong(converter, f"{converter!r} is not supported", nearest(converter, CONVERTERS))
    if action not in _ACTIONS:
        raise _wrong(action, f"the action {action!r} is not supported", nearest(action, _ACTIONS))
    return converter, action


_USAGE = "write, for example: mm-convert Qwen2_5_VLConverter hf_to_mm --cfg.mm_dir DIR ..."


def _value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise _wrong(name, f"{text!r} cannot be read", "quote the value") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(f"--config {path}", f"the file is no YAML: {error}", "correct it") from None
    if not isinstance(document, dict):
        raise _wrong(f"--config {path}", "the file holds no keys", "write a `cfg:` block")
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
    known = {*_ACTIONS[action].keys, *_MUST_BE, "trust_remote_code"}
    known |= {f"common_model_config.{name}" for name in (*_COMMON, *_FROM_CONFIG)}
    for key, value in keys.items():
        if key not in known:
            hint = nearest(f"--cfg.{key}", [f"--cfg.{name}" for name in sorted(known)])
            raise _wrong(f"--cfg.{key}", f"{action} has no key {key!r}", hint)
        if key in _MUST_BE and value not in (_MUST_BE[key], None):
            raise _wrong(
                f"--cfg.{key}",
                f"{key} = {value!r} is not supported",
                f"leave it out, or give {_MUST_BE[key]!r}",
            )


def merge_base_lora_weight(
    base_dir: Path,
    adapter_dir: Path,
    out_dir: Path,
    *,
    targets: Sequence[str],
    alpha: float | None,
    r: int | None,
    tp_size: int,
    pp_size: int,
    options: Options,
) -> MergeReport:
    """Merge as the stock script does: a base of TP x PP with an adapter.

    Raises:
        TaskpackError: As `lora_merge`.
    """
    folder = read_mm_folder(base_dir)
    model = None
    if folder.record is None or not folder.record.dims:
        model = guess_model(folder.infos, infer_layout(folder), where=str(base_dir))
    if len(folder.ranks) != tp_size * pp_size:
        raise _wrong(
            "merge_base_lora_weight --tp_size --pp_size",
            f"the base has {len(folder.ranks)} rank files, not {tp_size} x {pp_size}",
            "give the sizes the base was converted with",
        )
    return lora_merge(
        base_dir,
        adapter_dir,
        out_dir,
        model=model,
        targets=targets,
        lora={"--lora_alpha and --lora_r": (alpha, r)},
        options=options,
    )


def run_request(request: Request, options: Options) -> Account:
    """Carry out a parsed command.

    Raises:
        TaskpackError: As the conversion it stands for.
    """
    return _ACTIONS[request.action].run(request, options)


def _hf_to_mm(request: Request, options: Options) -> Account:
    hf_dir = request.path("hf_config.hf_dir")
    _same_family(request, read_hf_config(hf_dir), hf_dir)
    return hf_to_mm(
        hf_dir,
        request.path("mm_dir"),
        layout=request.layout(),
        options=options,
        where="--cfg.parallel_config",
    )


def _mm_to_hf(request: Request, options: Options) -> Account:
    hf_dir = request.path("hf_config.hf_dir")
    _same_family(request, read_hf_config(hf_dir), hf_dir)
    return mm_to_hf(
        request.path("mm_dir"),
        hf_dir,
        request.path("save_hf_dir"),
        layout=request.layout(),
        options=options,
        where="--cfg.parallel_config",
    )


def _same_family(request: Request, model: HfConfig, hf_dir: Path) -> None:
    if model.family.name != request.family:
        raise ProfileError(
            f"the model is of family {model.family.name}, the converter is for {request.family}",
            where=str(hf_dir / "config.json"),
            why="each converter has its own table of names",
            fix="use " + next(n for n, f in CONVERTERS.items() if f == model.family.name),
        )


def _resplit(request: Request, options: Options) -> Account:
    source_dir = request.path("source_dir")
    source = request.layout("source_parallel_config")
    target = request.layout("target_parallel_config")
    folder = read_mm_folder(source_dir)
    model = None
    if folder.record is None or not folder.record.dims:
        model = infer_model(
            FAMILIES[request.family], folder.infos, source, others=[target], where=str(source_dir)
        )
    return resplit(
        source_dir,
        request.path("target_dir"),
        target=target,
        source=source,
        model=model,
        options=options,
        where="--cfg.source_parallel_config",
    )


def _lora_hf_to_mm(request: Request, options: Options) -> Account:
    _wants_canonical(request)
    peft_dir, layout = request.path("hf_config.hf_dir"), request.layout()
    infos = peft_adapter_infos(peft_dir)
    plain = Layout(1, layout.text, layout.vision, canonical=True)
    model = infer_model(
        FAMILIES[request.family], infos, plain, others=[layout], where=str(peft_dir)
    )
    return peft_to_mm(peft_dir, model, request.path("mm_dir"), layout=layout, options=options)


def _lora_mm_to_hf(request: Request, options: Options) -> Account:
    _wants_canonical(request)
    mm_dir, peft_dir = request.path("mm_dir"), request.path("save_hf_dir")
    layout = request.layout()
    folder = read_mm_folder(mm_dir)
    model = infer_model(FAMILIES[request.family], folder.infos, layout, where=str(mm_dir))
    prefix = request.keys.get("common_model_config.model_prefix") or ""
    new_names = request.flag("common_model_config.new_transformers_weight_key")
    naming: Naming = tuple(
        (own, f"{prefix}{other}") for own, other in model.family.namings[0 if new_names else -1]
    )
    alpha = known_alpha(folder)
    if alpha is None:
        log.info("%s: no %s, since nothing in %s tells alpha", peft_dir, ADAPTER_CONFIG, mm_dir)
    return mm_to_peft(
        folder,
        model,
        peft_dir,
        layout=layout,
        alpha=alpha,
        naming=naming,
        options=options,
    )


def _wants_canonical(request: Request) -> None:
    if not request.flag("common_model_config.enable_canonical_hf_struct"):
        raise _wrong(
            "--cfg.common_model_config.enable_canonical_hf_struct",
            "adapters are converted in the canonical structure only by this command",
            "set it to true; `taskpack lora` converts fused adapters",
        )


@dataclass(frozen=True, slots=True)
class _Action:
    run: Callable[[Request, Options], Account]
    keys: tuple[str, ...]


def _parallel(prefix: str = "parallel_config") -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in _PARALLEL)


_ACTIONS = {
    "hf_to_mm": _Action(_hf_to_mm, ("mm_dir", "hf_config.hf_dir", "save_vit_only", *_parallel())),
    "mm_to_hf": _Action(_mm_to_hf, ("save_hf_dir", "mm_dir", "hf_config.hf_dir", *_parallel())),
    "resplit": _Action(
        _resplit,
        (
            *("source_dir", "target_dir"),
            *_parallel("source_parallel_config"),
            *_parallel("target_parallel_config"),
        ),
    ),
    "lora_hf_to_mm": _Action(
        _lora_hf_to_mm, ("mm_dir", "hf_config.hf_dir", "save_vit_only", *_parallel())
    ),
    "lora_mm_to_hf": _Action(
        _lora_mm_to_hf, ("save_hf_dir", "mm_dir", "hf_config.hf_dir", *_parallel())
    ),
}
