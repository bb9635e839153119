"""Inference and evaluation: their command lines and json files, from the same profile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from taskpack.profile import Profile, Release
from taskpack.render.context import Setting, task_context
from taskpack.render.engine import environment
from taskpack.render.environment import meaning
from taskpack.render.flags import Argument, known_arguments
from taskpack.render.json_files import format_json

KINDS = ("inference", "evaluate")

_OF_TRAINING = ("seq_length", "bias_activation_fusion", "attention_mask_type")
_OF_EVALUATION = {
    "HCCL_CONNECT_TIMEOUT": "7200",
    "HCCL_EXEC_TIMEOUT": "7200",
    "TOKENIZERS_PARALLELISM": "false",
}


def generation_context(profile: Profile, release: Release, kind: str) -> dict[str, Any]:
    """Gather the names that the templates of inference or evaluation may use.

    Args:
        profile: The checked profile.
        release: Its release.
        kind: One of KINDS.

    Raises:
        ProfileError: The release does not know a flag.
    """
    generating = profile.generating
    return {
        **task_context(generating, release),
        "kind": kind,
        "arguments": known_arguments(_arguments(generating, kind), release),
        "variables": _variables(profile, kind),
    }


def generation_files(profile: Profile, release: Release) -> Iterator[tuple[str, bytes]]:
    """Render the script and the json file of each kind, by their names.

    Raises:
        ProfileError: The release does not know a flag.
    """
    made = environment()
    for kind in KINDS:
        context = generation_context(profile, release, kind)
        script = made.get_template("generate/script.sh.j2").render(context)
        yield f"{kind}_{profile.family_facts.script}.sh", script.encode()
        model = json.loads(made.get_template("task/model.json.j2").render(context))
        settings = json.loads(made.get_template("generate/settings.json.j2").render(context))
        yield f"{kind}.json", (format_json(_joined(model, settings, release)) + "\n").encode()


def _joined(
    model: Mapping[str, Any], settings: Mapping[str, Any], release: Release
) -> dict[str, Any]:
    """Put the structure of model.json between the settings of generation."""
    encoder, text = model["image_encoder"], model["text_decoder"]
    fused = {"use_infer_fa": True} if release.fused_inference else {}
    return {
        **settings,
        "img_context_token_id": model["img_context_token_id"],
        "image_encoder": {name: _still(part) for name, part in encoder.items()},
        "text_decoder": {
            **_still(text),
            "parallel_output": False,
            "sequence_parallel": False,
            "tokenizer_type": "PretrainedFromHF",
            "is_encoder_decoder": False,
            **fused,
        },
        "text_encoder": None,
        "video_encoder": None,
    }


def _still(part: Mapping[str, Any]) -> dict[str, Any]:
    projector = part.get("model_id") == "lnmlp"
    return {key: value for key, value in part.items() if projector or key not in _OF_TRAINING}


def _arguments(profile: Profile, kind: str) -> Iterator[Argument]:
    yield Argument("--use-mcore-models")
    yield Argument("--tensor-model-parallel-size", ('"$TP"',))
    yield Argument("--pipeline-model-parallel-size", ('"$PP"',))
    if profile.parallel.pp > 1:
        yield Argument("--variable-seq-lengths")
    yield Argument("--micro-batch-size", ("1",))
    yield Argument("--global-batch-size", ('"$GLOBAL_BATCH_SIZE"',))
    yield Argument("--tokenizer-type", ("NullTokenizer",))
    yield Argument("--vocab-size", (str(profile.architecture.text.vocab_size),))
    yield Argument("--seq-length", ('"$SEQ_LENGTH"',))
    yield Argument("--make-vocab-size-divisible-by", ("1",))
    yield Argument("--normalization", ("RMSNorm",))
    yield Argument("--swiglu")
    yield Argument("--use-fused-rmsnorm")
    yield Argument("--use-fused-swiglu")
    yield Argument("--seed", (str(profile.train.seed),))
    yield Argument("--bf16")
    yield Argument("--use-flash-attn")
    yield Argument("--load", ('"$LOAD_PATH"',))
    yield Argument("--exit-on-missing-checkpoint")
    yield Argument("--no-load-optim")
    yield Argument("--no-load-rng")
    if kind == "evaluate":
        yield Argument("--distributed-timeout-minutes", ("1000",))
    yield Argument("--mm-model", (f'"$TASK/{kind}.json"',))
    for flag, value in (("log", 1), ("save", 10000), ("eval", 10000)):
        yield Argument(f"--{flag}-interval", (str(value),))
    yield Argument("--eval-iters", ("5000",))
    yield Argument("--distributed-backend", ("nccl",))


def _variables(profile: Profile, kind: str) -> tuple[Setting, ...]:
    variables = dict(profile.platform.env)
    if kind == "evaluate":
        variables |= _OF_EVALUATION
    return tuple(Setting(name, value, meaning(name)) for name, value in variables.items())
