"""What the flags and the two json files ask for, checked as far as the trainer checks it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.errors import CheckpointError, ProfileError, raise_collected
from taskpack.parallel import PipelineSplit
from taskpack.rehearse.engine.flags import WHERE, Flags
from taskpack.weights import Layout
from taskpack.weights.folders import TRACKER_FILE

DECAY_STYLES = ("constant", "linear", "cosine", "inverse-square-root")
MODEL_KEYS = (
    "img_context_token_id",
    "text_decoder.num_layers",
    "text_decoder.pipeline_num_layers",
    "image_encoder.vision_encoder.num_layers",
    "image_encoder.vision_encoder.pipeline_num_layers",
    "image_encoder.vision_projector",
)
DATA_KEYS = (
    "dataset_param.preprocess_parameters.model_name_or_path",
    "dataset_param.basic_parameters.dataset",
    "dataset_param.attr.messages",
    "dataset_param.attr.role_tag",
    "dataset_param.attr.content_tag",
    "dataset_param.attr.user_tag",
    "dataset_param.attr.assistant_tag",
)


@dataclass(frozen=True, slots=True)
class Lora:
    """Adapter settings; absent when all weights train."""

    r: int
    alpha: int
    dropout: float
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """One training run."""

    train_iters: int
    micro_batch: int
    global_batch: int
    seq_length: int
    """Tokens; longer samples are cut."""
    lr: float
    min_lr: float
    decay_style: str
    warmup_fraction: float
    weight_decay: float
    clip_grad: float
    """0 switches clipping off."""
    betas: tuple[float, float]
    seed: int
    log_interval: int
    save_interval: int
    log_tokens: bool
    load: Path
    save: Path
    lora: Lora | None
    layout: Layout
    structure: Mapping[str, Any]
    """model.json."""
    data: Mapping[str, Any]
    """data.json."""
    dp_size: int
    """Data parallel ranks of the real launch, whatever number of processes stands in for them."""

    @property
    def hf_ref(self) -> Path:
        """The original HF folder: tokenizer, image processor and config."""
        limits = self.data["dataset_param"]["preprocess_parameters"]
        return Path(limits["model_name_or_path"])

    @property
    def frozen(self) -> tuple[bool, bool]:
        """Whether vision tower and projector are frozen; the defaults are the trainer's."""
        image = self.structure["image_encoder"]
        vision, projector = image["vision_encoder"], image["vision_projector"]
        return bool(vision.get("freeze", True)), bool(projector.get("freeze", False))


def read_settings(flags: Flags, *, cluster_size: int) -> Settings:
    """Gather the run from flags and files.

    Args:
        flags: The parsed command line.
        cluster_size: NPUs that the real launch would occupy.

    Raises:
        ProfileError: Values are missing or contradict each other; all are reported.
        CheckpointError: There is nothing to load.
    """
    structure = read_json(Path(flags.text("--mm-model")), "--mm-model", MODEL_KEYS)
    data = read_json(Path(flags.text("--mm-data")), "--mm-data", DATA_KEYS)
    read_json(Path(flags.text("--mm-tool")), "--mm-tool")
    layout = _layout(flags, structure)
    copy_size = layout.tp_size * layout.pp_size * flags.count("--context-parallel-size", 1)
    settings = Settings(
        train_iters=flags.count("--train-iters", 0),
        micro_batch=flags.count("--micro-batch-size", 0),
        global_batch=flags.count("--global-batch-size", 0),
        seq_length=flags.count("--seq-length", 0),
        lr=flags.number("--lr", 0.0),
        min_lr=flags.number("--min-lr", 0.0),
        decay_style=flags.text("--lr-decay-style", "linear"),
        warmup_fraction=flags.number("--lr-warmup-fraction", 0.0),
        weight_decay=flags.number("--weight-decay", 0.01),
        clip_grad=flags.number("--clip-grad", 1.0),
        betas=(flags.number("--adam-beta1", 0.9), flags.number("--adam-beta2", 0.999)),
        seed=flags.count("--seed", 1234),
        log_interval=flags.count("--log-interval", 100),
        save_interval=flags.count("--save-interval", 0),
        log_tokens=flags.present("--log-tps"),
        load=Path(flags.text("--load")),
        save=Path(flags.text("--save")),
        lora=_lora(flags),
        layout=layout,
        structure=structure,
        data=data,
        dp_size=cluster_size // copy_size,
    )
    world = _world_faults(cluster_size, copy_size)
    raise_collected(world or [*_faults(settings, flags), *_resume_faults(flags)])
    _check_load(settings.load)
    return settings


def read_json(path: Path, flag: str, required: Sequence[str] = ()) -> dict[str, Any]:
    """Read a file of the trainer as strictly as the trainer does.

    Args:
        path: The file.
        flag: The flag that named it, for messages.
        required: Dotted keys that must be there.

    Raises:
        ProfileError: It is absent, not a JSON object, or lacks a key.
    """
    value: Any = None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        fault = "" if isinstance(value, dict) else "is no JSON object"
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    except ValueError as error:
        fault = f"is not strict JSON ({error})"
    missing = [] if fault else [key for key in required if not _has(value, key)]
    if missing:
        fault = f"lacks {', '.join(missing)}"
    if fault:
        raise ProfileError(
            f"{flag} {path} {fault}",
            where=str(path),
            why="the trainer reads structure and data from it",
            fix="render the task again, and start the script from its checkout",
        )
    document: dict[str, Any] = value
    return document


def _has(value: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def _lora(flags: Flags) -> Lora | None:
    targets = flags.words("--lora-target-modules")
    r, alpha = flags.count("--lora-r", 8), flags.count("--lora-alpha", 16)
    dropout = flags.number("--lora-dropout", 0.0)
    return Lora(r, alpha, dropout, targets) if targets else None


def _layout(flags: Flags, structure: Mapping[str, Any]) -> Layout:
    tp_size = flags.count("--tensor-model-parallel-size", 1)
    pp_size = flags.count("--pipeline-model-parallel-size", 1)
    flags.count("--virtual-pipeline-model-parallel-size", 1)
    text = structure["text_decoder"]
    vision = structure["image_encoder"]["vision_encoder"]
    splits, faults = [], []
    for name, module in (("text_decoder", text), ("vision_encoder", vision)):
        layers = module["pipeline_num_layers"] if pp_size > 1 else [module["num_layers"]]
        split = PipelineSplit.parse(layers)
        splits.append(split)
        if split.pp_size != pp_size or split.total != module["num_layers"]:
            faults.append(
                ProfileError(
                    f"{name} has {split.total} layers on {split.pp_size} stages",
                    where=f"{flags.text('--mm-model')} ({name}.pipeline_num_layers)",
                    why=f"{module['num_layers']} layers and {pp_size} stages are asked for",
                    fix="render the task again: both come from one profile",
                )
            )
    raise_collected(faults)
    canonical = bool(text.get("canonical_model", False))
    return Layout(tp_size=tp_size, text=splits[0], vision=splits[1], canonical=canonical)


def _world_faults(cluster_size: int, copy_size: int) -> list[ProfileError]:
    if cluster_size % copy_size == 0:
        return []
    return [
        ProfileError(
            f"{cluster_size} NPUs cannot hold copies of {copy_size}",
            where=WHERE,
            why="tensor x pipeline x context parallel size must divide the number of NPUs",
            fix=f"start a multiple of {copy_size} processes",
        )
    ]


def _faults(settings: Settings, flags: Flags) -> list[ProfileError]:
    faults = []

    def fault(what: str, why: str, fix: str) -> None:
        faults.append(ProfileError(what, where=WHERE, why=why, fix=fix))

    step = settings.micro_batch * settings.dp_size
    if not step or not settings.global_batch or settings.global_batch % step:
        fault(
            f"--global-batch-size {settings.global_batch} is no multiple of {step}",
            "each data parallel rank takes whole micro batches",
            f"use a multiple of {step}" if step else "set --micro-batch-size",
        )
    for flag in ("--train-iters", "--seq-length", "--log-interval", "--save-interval"):
        if flags.count(flag, 100 if flag == "--log-interval" else 0) <= 0:
            fault(f"{flag} is missing or not positive", "it counts something", "set it from 1")
    if settings.decay_style not in DECAY_STYLES:
        fault(
            f"--lr-decay-style {settings.decay_style} is not rehearsed",
            "the rehearsal follows the same learning rates as the trainer",
            f"use one of: {', '.join(DECAY_STYLES)}",
        )
    if not flags.present("--bf16"):
        fault("--bf16 is missing", "the trainer needs it for this model", "pass --bf16")
    return faults


def _resume_faults(flags: Flags) -> list[ProfileError]:
    used = [flag for flag in ("--load-base-model", "--ckpt-step") if flags.text(flag)]
    needed = ("--no-load-optim", "--no-load-rng", "--no-save-optim", "--no-save-rng")
    used += [f"no {flag}" for flag in needed if not flags.present(flag)]
    if not used:
        return []
    return [
        ProfileError(
            f"the run resumes another ({', '.join(used)})",
            where=WHERE,
            why="the rehearsal trains from converted weights and keeps no optimizer state",
            fix="rehearse with resume.iteration: null and resume.optimizer: false",
        )
    ]


def _check_load(folder: Path) -> None:
    tracker = folder / TRACKER_FILE
    if not tracker.is_file():
        raise CheckpointError(
            f"--load {folder} has no {tracker.name}",
            where=str(tracker),
            why="without it the trainer would start from random weights",
            fix="convert the weights first: bash tasks/<model>/convert_hf_to_mm.sh",
        )
