"""The stock converter's command line, argument for argument, on top of our conversions.

`mm-convert CONVERTER ACTION --cfg.a.b VALUE ...`, with `--config FILE` for a YAML file of the same
keys. Every key is known by name; one that would change the result and is not supported is refused,
never ignored. `merge_base_lora_weight` stands for the stock merge script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from taskpack.errors import ProfileError
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
from taskpack.weights.mm_request import CONVERTERS, FROM_CONFIG, Request, wrong
from taskpack.weights.peft_config import ADAPTER_CONFIG
from taskpack.weights.rows import Naming
from taskpack.weights.run import Options
from taskpack.weights.shape_dims import guess_model, infer_model

log = logging.getLogger(__name__)


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
        raise wrong(
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
    return _RUN[request.action](request, options)


def _hf_to_mm(request: Request, options: Options) -> Account:
    hf_dir = request.path("hf_config.hf_dir")
    _check_model(request, read_hf_config(hf_dir), hf_dir)
    return hf_to_mm(
        hf_dir,
        request.path("mm_dir"),
        layout=request.layout(),
        options=options,
        where="--cfg.parallel_config",
    )


def _mm_to_hf(request: Request, options: Options) -> Account:
    hf_dir = request.path("hf_config.hf_dir")
    _check_model(request, read_hf_config(hf_dir), hf_dir)
    return mm_to_hf(
        request.path("mm_dir"),
        hf_dir,
        request.path("save_hf_dir"),
        layout=request.layout(),
        options=options,
        where="--cfg.parallel_config",
    )


def _check_model(request: Request, model: HfConfig, hf_dir: Path) -> None:
    """Refuse a model of another family, or one that the given keys contradict."""
    if model.family.name != request.family:
        raise ProfileError(
            f"the model is of family {model.family.name}, the converter is for {request.family}",
            where=str(hf_dir / "config.json"),
            why="each converter has its own table of names",
            fix="use "
            + next(
                (name for name, family in CONVERTERS.items() if family == model.family.name),
                "taskpack convert, which knows every family",
            ),
        )
    layers = model.family.layers
    facts: dict[str, object] = {
        "num_key_value_heads": model.dims["groups"],
        "tie_word_embeddings": model.tied,
        "llm_num_layers": model.dims[layers["text"]],
        "vit_num_layers": model.dims[layers["vision"]],
    }
    for name in FROM_CONFIG:
        given = request.keys.get(f"common_model_config.{name}")
        if given is not None and given != facts[name]:
            raise wrong(
                f"--cfg.common_model_config.{name}",
                f"{name} is {given!r}, but {facts[name]!r} in {hf_dir / 'config.json'}",
                "leave it out; it is read from the model",
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
    if request.flag("save_vit_only"):
        raise wrong(
            "--cfg.save_vit_only",
            "an adapter is converted whole by this command",
            "leave it out; what the adapter has of the text decoder stays",
        )
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
        raise wrong(
            "--cfg.common_model_config.enable_canonical_hf_struct",
            "adapters are converted in the canonical structure only by this command",
            "set it to true; `taskpack lora` converts fused adapters",
        )


_RUN: dict[str, Callable[[Request, Options], Account]] = {
    "hf_to_mm": _hf_to_mm,
    "mm_to_hf": _mm_to_hf,
    "resplit": _resplit,
    "lora_hf_to_mm": _lora_hf_to_mm,
    "lora_mm_to_hf": _lora_mm_to_hf,
}
