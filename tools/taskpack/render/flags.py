"""The command line of the trainer, in the order of the shipped script.

Flags and values are those of each release's shipped scripts, apart from these deliberate
differences:

* `--exit-on-missing-checkpoint` is added: without a tracker file the trainer warns and goes on
  from random weights.
* `--min-lr` is added, since the profile states it.
* `--variable-seq-lengths` and `--virtual-pipeline-model-parallel-size` follow the pipeline size,
  `--enable-dummy-optimizer` the frozen stages, and `--no-load-*`, `--no-save-*` and
  `--load-base-model` the `resume` keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from taskpack.errors import ProfileError, nearest, raise_collected
from taskpack.profile import Profile, Release
from taskpack.profile.releases import varying_flags
from taskpack.profile.yaml_loader import KeyPath, dotted
from taskpack.render.engine import shell_word


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag and the shell-ready words behind it."""

    flag: str
    words: tuple[str, ...] = ()
    key: KeyPath = ("release",)
    """Key of the profile that asks for the flag."""


@dataclass(frozen=True, slots=True)
class ArgumentGroup:
    """Flags that belong together; `name` is also the shell array's name."""

    name: str
    arguments: tuple[Argument, ...]


def argument_groups(profile: Profile, release: Release) -> tuple[ArgumentGroup, ...]:
    """List the flags of every launch, full or LoRA.

    Raises:
        ProfileError: The release does not know one of them.
    """
    parts = {
        "parallel": _parallel(profile),
        "fsdp2": _fsdp2(profile),
        "training": _training(profile),
        "kernels": _kernels(profile, release),
        "checkpoint": _checkpoint(profile),
        "data": _data(profile),
        "output": _output(profile),
    }
    groups = {name: _passed(arguments, profile, release) for name, arguments in parts.items()}
    rendered = {argument.flag: argument for group in groups.values() for argument in group}
    groups["extra"] = _extra(profile, rendered)
    return tuple(ArgumentGroup(name, arguments) for name, arguments in groups.items() if arguments)


def lora_arguments(profile: Profile, release: Release) -> tuple[Argument, ...]:
    """List the flags that a LoRA launch adds.

    Raises:
        ProfileError: The release does not know one of them.
    """
    return _passed(_lora(profile), profile, release)


def restarted(profile: Profile) -> Profile:
    """Give the profile of a start from an iteration that the run itself has saved."""
    resume = profile.resume.model_copy(update={"iteration": 1})
    return profile.model_copy(update={"resume": resume})


def _passed(
    arguments: Iterator[Argument], profile: Profile, release: Release
) -> tuple[Argument, ...]:
    skipped = varying_flags() - set(release.passes_also[profile.family])
    if profile.parallel.fsdp2 and release.fsdp2:
        skipped -= set(release.fsdp2.passes_also)
    if profile.parallel.cp > 1:
        skipped -= {"--context-parallel-algo"}
    kept = (argument for argument in arguments if argument.flag not in skipped)
    return known_arguments(kept, release)


def known_arguments(arguments: Iterable[Argument], release: Release) -> tuple[Argument, ...]:
    """List arguments, all of which the release knows.

    Raises:
        ProfileError: It does not know one of them.
    """
    kept = tuple(arguments)
    raise_collected([_unknown(each, release) for each in kept if each.flag not in release.flags])
    return kept


def _unknown(argument: Argument, release: Release) -> ProfileError:
    return ProfileError(
        f"MindSpeed-MM {release.name} has no flag {argument.flag}",
        where=f"the profile's {dotted(argument.key)}",
        why="the trainer stops at a flag that it does not know",
        fix=f"change that key or the release ({nearest(argument.flag, release.flags)})",
    )


def _extra(profile: Profile, rendered: Mapping[str, Argument]) -> tuple[Argument, ...]:
    """List the flags that the profile adds; one that is rendered already may only agree."""
    added, errors = [], []
    for flag, value in profile.extra.flags.items():
        values = value if isinstance(value, tuple) else (value,)
        words = () if value is True else tuple(map(shell_word, values))
        given = rendered.get(flag)
        if given is None:
            added.append(Argument(flag, words, ("extra", "flags", flag)))
        elif given.words != words:
            errors.append(
                ProfileError(
                    f"{flag} is rendered already, as {' '.join(given.words) or 'a switch'}",
                    where=f"the profile's extra.flags.{flag}",
                    why="of two values the last would win, and the files would disagree",
                    fix="use the profile's own key, or the environment at launch",
                )
            )
    raise_collected(errors)
    return tuple(added)


def _parallel(profile: Profile) -> Iterator[Argument]:
    parallel = profile.parallel
    yield Argument("--use-mcore-models")
    yield Argument("--tensor-model-parallel-size", ('"$TP"',))
    yield Argument("--pipeline-model-parallel-size", ('"$PP"',))
    if parallel.vpp > 1:
        yield Argument(
            "--virtual-pipeline-model-parallel-size",
            (str(parallel.vpp),),
            ("parallel", "text_layers"),
        )
    yield Argument("--context-parallel-size", ('"$CP"',))
    yield Argument("--context-parallel-algo", (parallel.cp_algo,), ("parallel", "cp_algo"))
    if parallel.pp > 1 or parallel.fsdp2:
        yield Argument("--variable-seq-lengths")
    if not parallel.fsdp2:
        yield Argument("--use-distributed-optimizer")
    if profile.needs_dummy_optimizer:
        yield Argument("--enable-dummy-optimizer", key=("parallel", "text_layers"))
    timeout = shell_word(profile.platform.timeout_minutes)
    yield Argument("--distributed-timeout-minutes", (timeout,), ("platform", "timeout_minutes"))
    yield Argument("--distributed-backend", ("nccl",))


def _fsdp2(profile: Profile) -> Iterator[Argument]:
    if not profile.parallel.fsdp2:
        return
    key = ("parallel", "fsdp2")
    yield Argument("--use-torch-fsdp2", key=key)
    yield Argument("--fsdp2-config-path", ('"$TASK/fsdp2_config.yaml"',), key)
    yield Argument("--untie-embeddings-and-output-weights", key=key)
    yield Argument("--use-cpu-initialization", key=key)
    yield Argument("--init-model-with-meta-device", key=key)
    yield Argument("--no-initialization", key=key)


def _training(profile: Profile) -> Iterator[Argument]:
    train = profile.train
    yield Argument("--micro-batch-size", ('"$MICRO_BATCH_SIZE"',))
    yield Argument("--global-batch-size", ('"$GLOBAL_BATCH_SIZE"',))
    yield Argument("--train-iters", ('"$TRAIN_ITERS"',))
    yield Argument("--seq-length", ('"$SEQ_LENGTH"',))
    yield Argument("--lr", ('"$LR"',))
    yield Argument("--min-lr", (shell_word(train.min_lr),), ("train", "min_lr"))
    yield Argument("--lr-decay-style", (train.lr_decay,), ("train", "lr_decay"))
    yield Argument("--lr-warmup-fraction", (shell_word(train.warmup_fraction),))
    yield Argument("--weight-decay", (shell_word(train.weight_decay),))
    yield Argument("--clip-grad", (shell_word(train.clip_grad),))
    yield Argument("--adam-beta1", ("0.9",))
    yield Argument("--adam-beta2", ("0.999",))
    yield Argument("--seed", (shell_word(train.seed),))


def _kernels(profile: Profile, release: Release) -> Iterator[Argument]:
    yield Argument("--bf16")
    yield Argument("--use-flash-attn")
    if not profile.parallel.fsdp2:
        yield Argument("--no-masked-softmax-fusion")
    if not (profile.train.fused_gradients and release.fused_gradients):
        yield Argument("--no-gradient-accumulation-fusion")
    yield Argument("--normalization", ("RMSNorm",))
    yield Argument("--use-fused-rmsnorm")
    yield Argument("--swiglu")
    yield Argument("--use-fused-swiglu")
    yield Argument("--tokenizer-type", ("NullTokenizer",))
    yield Argument("--vocab-size", (str(profile.architecture.text.vocab_size),))
    yield Argument("--make-vocab-size-divisible-by", ("1",))


def _checkpoint(profile: Profile) -> Iterator[Argument]:
    resume = profile.resume
    resumes = resume.iteration is not None
    load = '"$RESUME_PATH"' if isinstance(resume.iteration, int) else '"$LOAD_PATH"'
    yield Argument("--load", (load,))
    if resumes or not profile.hf.online:
        # an HF folder has no tracker; MindSpeed-MM loads it before it looks for one
        yield Argument("--exit-on-missing-checkpoint")
    if not (resumes and resume.optimizer):
        yield Argument("--no-load-optim")
    if not (resumes and resume.rng):
        yield Argument("--no-load-rng")
    if not resume.optimizer:
        yield Argument("--no-save-optim")
    if not resume.rng:
        yield Argument("--no-save-rng")
    yield Argument("--save", ('"$SAVE_PATH"',))
    yield Argument("--save-interval", ('"$SAVE_INTERVAL"',))
    yield Argument("--ckpt-format", ("torch_dist" if profile.parallel.fsdp2 else "torch",))


def _data(profile: Profile) -> Iterator[Argument]:
    yield Argument("--mm-data", ('"$DATA_JSON"',))
    yield Argument("--mm-model", ('"$TASK/model.json"',))
    yield Argument("--mm-tool", ("./mindspeed_mm/tools/tools.json",))
    yield Argument("--num-workers", (str(profile.data.loader_workers),))


def _output(profile: Profile) -> Iterator[Argument]:
    yield Argument("--log-interval", ('"$LOG_INTERVAL"',))
    yield Argument("--eval-interval", (str(profile.train.eval_interval),))
    yield Argument("--eval-iters", (str(profile.train.eval_iters),))
    yield Argument("--log-tps")


def _lora(profile: Profile) -> Iterator[Argument]:
    lora = profile.tuning.lora
    if profile.resume.iteration is not None:
        yield Argument("--load-base-model", ('"$BASE_PATH"',), ("resume", "iteration"))
    yield Argument("--lora-r", (str(lora.r),))
    yield Argument("--lora-alpha", (shell_word(lora.alpha),))
    yield Argument("--lora-dropout", (shell_word(lora.dropout),))
    yield Argument("--lora-target-modules", tuple(map(shell_word, lora.targets)))
