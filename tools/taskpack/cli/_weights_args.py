"""Arguments that several weights commands share, and how they are read."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.errors import ProfileError
from taskpack.parallel import PipelineSplit

if TYPE_CHECKING:
    from taskpack.profile import Profile
    from taskpack.weights import Layout, Options


log = logging.getLogger(__name__)

_BESIDE = ("vit_tp", "ep", "canonical")
"""What a layout may have beside its tensor parallel size and its two lists."""


def add_dir(
    parser: argparse.ArgumentParser, flag: str, what: str, *, required: bool = True
) -> None:
    """Add a flag that names a folder."""
    parser.add_argument(flag, type=Path, metavar="DIR", required=required, help=what)


def count(text: str) -> int:
    """Read a number from 0."""
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 9999")
    return int(text)


def add_layout(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Add the flags of a layout; `prefix` tells those of the output."""
    what = "of the output" if prefix else "of the checkpoint"
    if not prefix:
        parser.add_argument(
            "--task", type=Path, metavar="DIR", help="task folder with profile.yaml"
        )
    parser.add_argument(f"--{prefix}tp", type=int, help=f"tensor parallel size {what}")
    for module, noun, example in (("llm", "text", "[4,9,9]"), ("vit", "vision", "[32,0,0]")):
        parser.add_argument(
            f"--{prefix}{module}-layers",
            type=_layers,
            metavar="LIST",
            help=f"{noun} layers per stage {what}, such as {example}",
        )
    parser.add_argument(f"--{prefix}vit-tp", type=int, help="other size for vision")
    parser.add_argument(f"--{prefix}ep", type=int, help="expert parallel size")
    parser.add_argument(
        f"--{prefix}canonical",
        action="store_true",
        help=f"structure {what} keeps HF's modules apart",
    )


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose rank files."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ranks", type=_numbers, help="write what these global ranks load: 0-7")
    which.add_argument("--pp-ranks", type=_numbers, help="write these pipeline stages: 0-3")
    which.add_argument("--tp-ranks", type=_numbers, help="write these tensor parallel ranks: 0,1")
    parser.add_argument("--world-size", type=int, help="NPUs of the cluster, for --ranks")


def add_iteration(parser: argparse.ArgumentParser) -> None:
    """Add the choice of an iteration."""
    parser.add_argument(
        "--iteration", type=_iteration, default="latest", help="latest, release or a number"
    )


def add_untie(parser: argparse.ArgumentParser) -> None:
    """Add what becomes of a head that no longer equals the embedding."""
    parser.add_argument("--untie", action="store_true", help="keep a head that differs")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every conversion takes."""
    parser.add_argument("--dtype", choices=("keep", "bf16", "fp16", "fp32"), default="keep")
    parser.add_argument("--threads", type=count, default=0, help="copying threads")
    parser.add_argument(
        "--buffer-mib",
        type=_buffer,
        default=1,
        metavar="N",
        help="MiB that each thread reads at once",
    )
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at the output")


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Add what decides how an adapter is merged."""
    parser.add_argument("--targets", nargs="+", default=[], help="modules to merge; all by default")
    parser.add_argument("--alpha", type=float, help="LoRA alpha, where nothing else tells it")
    parser.add_argument("--r", type=int, help="LoRA rank")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the device of a merge, which others than the CPU cannot change."""
    parser.add_argument(
        "--device",
        choices=("cpu", "npu", "cuda"),
        default="cpu",
        help="the math is done in fp64 on the CPU, which gives every layout the same bits",
    )


def keep_blas_single() -> None:
    """Keep numpy's BLAS from starting threads; to be called before numpy is imported.

    The copying threads call it side by side. Its own threads would make them wait for each other:
    measured on 2 cores, a product takes 20 times as long.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def note_device(args: argparse.Namespace) -> None:
    """Say so where another device was asked for."""
    if args.device != "cpu":
        log.info("--device %s: merged on the CPU, whose fp64 is exact", args.device)


@dataclass(frozen=True)
class Merge:
    """What the command line says about an adapter: targets, and alpha and r by their source."""

    targets: Sequence[str]
    lora: Mapping[str, tuple[float | None, float | None]]


def read_merge(args: argparse.Namespace, *, of_task: bool = True) -> Merge:
    """Read targets and scale.

    Args:
        args: The parsed command line.
        of_task: Whether the profile's targets count where none are given.
    """
    from taskpack.weights.folders import is_peft

    said: dict[str, tuple[float | None, float | None]] = {"--alpha and --r": (args.alpha, args.r)}
    profile = task_profile(args)
    if profile is None:
        return Merge(args.targets, said)
    lora = profile.tuning.lora
    targets = args.targets
    if of_task and not targets and not is_peft(args.adapter):
        targets = list(lora.targets)
    return Merge(targets, {**said, "the profile": (lora.alpha, lora.r)})


def _buffer(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of MiB from 1 to 999")
    return int(text)


def _layers(text: str) -> PipelineSplit:
    try:
        return PipelineSplit.parse(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of layers per stage such as [4,9,9] or [[1,1],[1,1]]"
        ) from None


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        ranks = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not ranks:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0-7 or 0,2")
        found.update(ranks)
    return frozenset(found)


def _iteration(text: str) -> str:
    if text in ("latest", "release") or (text.isascii() and text.isdecimal() and len(text) <= 12):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not latest, release or a number")


def task_profile(args: argparse.Namespace) -> Profile | None:
    """Read the profile of --task; None where the flag is absent."""
    return read_profile(args) if getattr(args, "task", None) is not None else None


def read_profile(args: argparse.Namespace) -> Profile:
    """Read the profile of the folder that --task names, once a command."""
    from taskpack.profile import load_profile

    if not hasattr(args, "profile"):
        args.profile = load_profile(args.task / "profile.yaml")
    profile: Profile = args.profile
    return profile


def read_layout_flags(args: argparse.Namespace, prefix: str = "") -> tuple[Layout | None, str]:
    """Read the layout that --task or the flags give, and what to call it in messages."""
    from taskpack.weights import Layout
    from taskpack.weights.task import task_layout

    needed = ("tp", "llm_layers", "vit_layers")
    spelled = {name: f"--{prefix}{name}".replace("_", "-") for name in needed}
    values = {name: getattr(args, f"{prefix}{name}") for name in (*needed, *_BESIDE)}
    given = {n: value for n, value in values.items() if value is not None and value is not False}
    if getattr(args, "task", None) is not None and not prefix:
        if given:
            raise ProfileError(
                "--task and layout flags were both given",
                where="command line",
                why="a layout typed twice can differ",
                fix="give --task alone, or the flags alone",
            )
        return task_layout(read_profile(args)), f"{args.task / 'profile.yaml'} (parallel)"
    if not given:
        return None, ""
    missing = [flag for name, flag in spelled.items() if name not in given]
    if missing:
        raise ProfileError(
            f"{', '.join(missing)} is missing",
            where="command line",
            why="a layout is a tensor parallel size and two lists of layers",
            fix=f"give all of {', '.join(spelled.values())}, or --task tasks/MODEL",
        )
    layout = Layout(
        tp_size=given["tp"],
        text=given["llm_layers"],
        vision=given["vit_layers"],
        vision_tp_size=given.get("vit_tp", 0),
        canonical=given.get("canonical", False),
        ep_size=given.get("ep", 1),
    )
    return layout, ", ".join(spelled.values())


def refuse_unread(args: argparse.Namespace, without: str, *names: str) -> None:
    """Refuse flags that have no effect, given what else is there.

    Raises:
        ProfileError: Some are given.
    """
    given = [name for name in names if getattr(args, name) not in (None, [])]
    if given:
        flags = ", ".join(f"--{name}".replace("_", "-") for name in given)
        raise ProfileError(
            f"{flags} has no effect without {without}",
            where="command line",
            why="a flag that is read by nothing may be a different wish",
            fix=f"add {without}, or leave {flags} out",
        )


def required(found: tuple[Layout | None, str], flags: str) -> tuple[Layout, str]:
    """Insist on a layout."""
    layout, where = found
    if layout is None:
        raise ProfileError(
            "the layout of the output is missing",
            where="command line",
            why="rank files are cut for a tensor parallel size and layers per stage",
            fix=f"give --task tasks/MODEL, or {flags}" if "--tp" in flags else f"give {flags}",
        )
    return layout, where


def chosen_ranks(args: argparse.Namespace, layout: Layout) -> frozenset[str] | None:
    """Name the rank folders that --ranks, --pp-ranks or --tp-ranks select; None is all."""
    from taskpack.weights.sides import rank_folders, rank_grid

    if args.ranks is None:
        refuse_unread(args, "--ranks", "world_size")
    profile = task_profile(args)
    world_size = args.world_size
    if profile is not None and world_size is None:
        world_size = profile.world_size
    try:
        if args.ranks is not None:
            return rank_folders(layout, args.ranks, world_size=world_size)
        if args.pp_ranks is not None or args.tp_ranks is not None:
            return rank_grid(layout, tp_ranks=args.tp_ranks, pp_ranks=args.pp_ranks)
    except ValueError as error:
        raise ProfileError(
            f"{error}",
            where="--ranks, --pp-ranks or --tp-ranks",
            why="each host writes the rank files that its own ranks load",
            fix="name ranks of this cluster; --world-size says how many there are",
        ) from None
    return None


def read_options(args: argparse.Namespace, ranks: frozenset[str] | None = None) -> Options:
    """Read the common flags."""
    from taskpack.weights import Options

    profile = task_profile(args)
    return Options(
        ranks=ranks,
        untie=getattr(args, "untie", False),
        dtype=args.dtype,
        threads=args.threads,
        buffer_bytes=args.buffer_mib << 20,
        pad_vocab=getattr(args, "pad_vocab", False),
        resume=args.resume,
        overwrite=args.overwrite,
        release=profile.release if profile is not None else None,
    )
