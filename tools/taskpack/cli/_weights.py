"""Commands of the `weights` group: convert, verify, inspect, lora."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.errors import ProfileError
from taskpack.parallel import PipelineSplit

if TYPE_CHECKING:
    from taskpack.profile import Profile
    from taskpack.weights import Layout, Options

Commands = argparse._SubParsersAction


def register(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    convert = commands.add_parser("convert", help="convert weights between Hugging Face and MM")
    directions = convert.add_subparsers(dest="direction", required=True, metavar="DIRECTION")
    _register_hf_to_mm(directions)
    _register_mm_to_hf(directions)
    _register_resplit(directions)
    _register_verify(commands)
    inspect = commands.add_parser("inspect", help="show what a weights folder holds")
    inspect.add_argument("dir", type=Path, help="Hugging Face folder or checkpoint")
    _add_iteration(inspect)
    _finish(inspect, _run_inspect)
    lora = commands.add_parser("lora", help="merge and convert LoRA adapters")
    actions = lora.add_subparsers(dest="action", required=True, metavar="ACTION")
    _register_merge(actions)


def _register_hf_to_mm(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("hf-to-mm", help="cut Hugging Face weights into rank files")
    parser.add_argument("--hf", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--mm", type=Path, required=True, help="checkpoint folder to make")
    _add_layout(parser)
    _add_ranks(parser)
    parser.add_argument("--vit-only", action="store_true", help="write the vision tower alone")
    parser.add_argument("--pad-vocab", action="store_true", help="pad the vocabulary for TP")
    _add_common(parser)
    _finish(parser, _run_hf_to_mm)


def _register_mm_to_hf(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("mm-to-hf", help="join rank files into a Hugging Face folder")
    parser.add_argument("--mm", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--hf-ref", type=Path, required=True, help="original Hugging Face folder")
    parser.add_argument("--hf", type=Path, required=True, help="Hugging Face folder to make")
    _add_layout(parser)
    _add_iteration(parser)
    _add_common(parser)
    _finish(parser, _run_mm_to_hf)


def _register_resplit(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("resplit", help="cut a checkpoint for another layout")
    parser.add_argument("--mm", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to make")
    _add_layout(parser)
    _add_layout(parser, prefix="to-")
    parser.add_argument("--hf-ref", type=Path, help="original Hugging Face folder, for its config")
    _add_ranks(parser)
    parser.add_argument("--pad-vocab", action="store_true", help="pad the vocabulary for TP")
    _add_iteration(parser)
    _add_common(parser)
    _finish(parser, _run_resplit)


def _register_verify(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "verify", help="compare two weights folders of any kind, or one with its own account"
    )
    parser.add_argument("a", type=Path, help="Hugging Face folder or checkpoint")
    parser.add_argument("b", type=Path, nargs="?", help="the other one; none checks the account")
    parser.add_argument("--hf-ref", type=Path, help="Hugging Face folder, for its config")
    parser.add_argument("--threads", type=int, default=0, help="reading threads")
    _add_iteration(parser)
    _finish(parser, _run_verify)


def _register_merge(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("merge", help="merge an adapter into its base weights")
    parser.add_argument("--base", type=Path, required=True, help="base checkpoint")
    parser.add_argument("--adapter", type=Path, required=True, help="adapter checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to make")
    parser.add_argument("--task", type=Path, help="task folder with profile.yaml")
    parser.add_argument("--targets", nargs="+", default=[], help="modules to merge; all by default")
    parser.add_argument("--alpha", type=float, help="LoRA alpha, where nothing else tells it")
    parser.add_argument("--r", type=int, help="LoRA rank")
    _add_iteration(parser)
    _add_common(parser)
    _finish(parser, _run_merge)


def _add_layout(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    what = "of the output" if prefix else "of the checkpoint"
    if not prefix:
        parser.add_argument("--task", type=Path, help="task folder with profile.yaml")
    parser.add_argument(f"--{prefix}tp", type=int, help=f"tensor parallel size {what}")
    for module in ("llm", "vit"):
        parser.add_argument(
            f"--{prefix}{module}-layers", type=_layers, help=f"layers per stage {what}: [4,9,9]"
        )
    parser.add_argument(f"--{prefix}vit-tp", type=int, default=0, help="other size for vision")
    parser.add_argument(
        f"--{prefix}canonical",
        action="store_true",
        help=f"structure {what} keeps HF's modules apart",
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ranks", type=_numbers, help="write what these global ranks load: 0-7")
    which.add_argument("--pp-ranks", type=_numbers, help="write these pipeline stages: 0-3")
    which.add_argument("--tp-ranks", type=_numbers, help="write these tensor parallel ranks: 0,1")
    parser.add_argument("--world-size", type=int, help="NPUs of the cluster, for --ranks")


def _add_iteration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--iteration", type=_iteration, default="latest", help="latest, release or a number"
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=("keep", "bf16", "fp16", "fp32"), default="keep")
    parser.add_argument("--threads", type=int, default=0, help="copying threads")
    parser.add_argument("--untie", action="store_true", help="keep a head that differs")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at the output")


def _finish(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


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
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0-7 or 0,2")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _iteration(text: str) -> str:
    if text in ("latest", "release") or (text.isascii() and text.isdecimal()):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not latest, release or a number")


def _profile(task: Path) -> Profile:
    from taskpack.profile import load_profile

    return load_profile(task / "profile.yaml")


def _layout(args: argparse.Namespace, prefix: str = "") -> tuple[Layout | None, str]:
    """Read the layout that --task or the flags give, and what to call it in messages."""
    from taskpack.weights import Layout
    from taskpack.weights.task import task_layout

    given = {name: getattr(args, f"{prefix}{name}") for name in ("tp", "llm_layers", "vit_layers")}
    spelled = {name: f"--{prefix}{name}".replace("_", "-") for name in given}
    task = getattr(args, "task", None)
    if task is not None and not prefix:
        if any(value is not None for value in given.values()):
            raise ProfileError(
                "--task and layout flags were both given",
                where="command line",
                why="a layout typed twice can differ",
                fix="give --task alone, or the flags alone",
            )
        return task_layout(_profile(task)), f"{task / 'profile.yaml'} (parallel)"
    missing = [spelled[name] for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None, ""
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
        vision_tp_size=getattr(args, f"{prefix}vit_tp"),
        canonical=getattr(args, f"{prefix}canonical"),
    )
    return layout, ", ".join(spelled.values())


def _wanted(found: tuple[Layout | None, str], flags: str) -> tuple[Layout, str]:
    layout, where = found
    if layout is None:
        raise ProfileError(
            "the layout of the output is missing",
            where="command line",
            why="rank files are cut for a tensor parallel size and layers per stage",
            fix=f"give --task tasks/MODEL, or {flags}" if "--tp" in flags else f"give {flags}",
        )
    return layout, where


def _ranks(args: argparse.Namespace, layout: Layout) -> frozenset[str] | None:
    """Name the rank folders that --ranks, --pp-ranks or --tp-ranks select; None is all."""
    from taskpack.weights.sides import rank_folders, rank_grid

    world_size = args.world_size
    if args.task is not None and world_size is None:
        world_size = _profile(args.task).world_size
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


def _options(args: argparse.Namespace, ranks: frozenset[str] | None = None) -> Options:
    from taskpack.weights import Options

    task = getattr(args, "task", None)
    return Options(
        ranks=ranks,
        untie=getattr(args, "untie", False),
        dtype=args.dtype,
        threads=args.threads,
        pad_vocab=getattr(args, "pad_vocab", False),
        resume=args.resume,
        overwrite=args.overwrite,
        release=_profile(task).release if task is not None else None,
    )


def _run_hf_to_mm(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from taskpack.weights import hf_to_mm

    layout, where = _wanted(_layout(args), "--tp, --llm-layers and --vit-layers")
    if args.vit_only:
        layout = replace(layout, modules=("vision",))
    account = hf_to_mm(
        args.hf, args.mm, layout=layout, options=_options(args, _ranks(args, layout)), where=where
    )
    return _report(args, account.to_json(), f"{args.mm}: {account}")


def _run_mm_to_hf(args: argparse.Namespace) -> int:
    from taskpack.weights import mm_to_hf

    layout, where = _layout(args)
    account = mm_to_hf(
        args.mm,
        args.hf_ref,
        args.hf,
        layout=layout,
        iteration=args.iteration,
        options=_options(args),
        where=where,
    )
    return _report(args, account.to_json(), f"{args.hf}: {account}")


def _run_resplit(args: argparse.Namespace) -> int:
    from taskpack.weights import resplit
    from taskpack.weights.hf_config import read_hf_config
    from taskpack.weights.task import task_model

    model = read_hf_config(args.hf_ref) if args.hf_ref else None
    if model is None and args.task is not None:
        model = task_model(_profile(args.task))
    source, where = _layout(args)
    target, _ = _wanted(_layout(args, "to_"), "--to-tp, --to-llm-layers and --to-vit-layers")
    account = resplit(
        args.mm,
        args.out,
        target=target,
        source=source,
        model=model,
        iteration=args.iteration,
        options=_options(args, _ranks(args, target)),
        where=where,
    )
    return _report(args, account.to_json(), f"{args.out}: {account}")


def _run_verify(args: argparse.Namespace) -> int:
    from taskpack.weights import verify_account, verify_equal

    if args.b is None:
        result = verify_account(args.a, threads=args.threads)
        return _report(args, result, f"{args.a}: {result['tensors']} tensors are as written")
    result = verify_equal(
        args.a, args.b, hf_ref=args.hf_ref, iteration=args.iteration, threads=args.threads
    )
    return _report(args, result, f"{args.a} and {args.b}: {result['tensors']} tensors are equal")


def _run_inspect(args: argparse.Namespace) -> int:
    from taskpack.weights.inspect import inspect_folder, inspect_text

    found = inspect_folder(args.dir, iteration=args.iteration)
    return _report(args, found, inspect_text(found))


def _run_merge(args: argparse.Namespace) -> int:
    from taskpack.weights import lora_merge
    from taskpack.weights.task import task_layout, task_model

    said: dict[str, tuple[float | None, float | None]] = {"--alpha and --r": (args.alpha, args.r)}
    known: dict[str, Any] = {"targets": args.targets, "lora": said}
    if args.task is not None:
        profile = _profile(args.task)
        lora = profile.tuning.lora
        known |= {"model": task_model(profile), "layout": task_layout(profile)}
        known["targets"] = args.targets or list(lora.targets)
        said["the profile"] = (lora.alpha, lora.r)
    report = lora_merge(
        args.base,
        args.adapter,
        args.out,
        iteration=args.iteration,
        options=_options(args),
        **known,
    )
    return _report(args, report.to_json(), f"{args.out}: {report}")


def _report(args: argparse.Namespace, result: dict[str, Any], text: str) -> int:
    print(json.dumps(result) if args.json else text)
    return 0
