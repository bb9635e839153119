"""Commands on whole models: convert, verify, inspect."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from taskpack.cli._weights_args import (
    add_common,
    add_dir,
    add_iteration,
    add_layout,
    add_ranks,
    add_scale,
    add_untie,
    chosen_ranks,
    count,
    keep_blas_single,
    read_layout_flags,
    read_merge,
    read_options,
    refuse_unread,
    required,
    task_profile,
)

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
    inspect.add_argument("dir", type=Path, metavar="DIR", help="Hugging Face folder or checkpoint")
    add_iteration(inspect)
    finish(inspect, _run_inspect)


def _register_hf_to_mm(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("hf-to-mm", help="cut Hugging Face weights into rank files")
    add_dir(parser, "--hf", "Hugging Face folder")
    parser.add_argument(
        "--mm", type=Path, metavar="DIR", required=True, help="checkpoint folder to make"
    )
    add_layout(parser)
    add_ranks(parser)
    parser.add_argument("--vit-only", action="store_true", help="write the vision tower alone")
    parser.add_argument("--pad-vocab", action="store_true", help="pad the vocabulary for TP")
    add_untie(parser)
    add_common(parser)
    finish(parser, _run_hf_to_mm)


def _register_mm_to_hf(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("mm-to-hf", help="join rank files into a Hugging Face folder")
    add_dir(parser, "--mm", "checkpoint folder")
    parser.add_argument(
        "--hf-ref", type=Path, metavar="DIR", required=True, help="original Hugging Face folder"
    )
    parser.add_argument(
        "--hf", type=Path, metavar="DIR", required=True, help="Hugging Face folder to make"
    )
    add_layout(parser)
    add_iteration(parser)
    add_untie(parser)
    add_common(parser)
    finish(parser, _run_mm_to_hf)


def _register_resplit(directions: Commands[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("resplit", help="cut a checkpoint for another layout")
    add_dir(parser, "--mm", "checkpoint folder")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="checkpoint folder to make"
    )
    add_layout(parser)
    add_layout(parser, prefix="to-")
    parser.add_argument(
        "--hf-ref", type=Path, metavar="DIR", help="original Hugging Face folder, for its config"
    )
    add_ranks(parser)
    parser.add_argument("--pad-vocab", action="store_true", help="pad the vocabulary for TP")
    add_iteration(parser)
    add_untie(parser)
    add_common(parser)
    finish(parser, _run_resplit)


def _register_verify(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "verify", help="compare two weights folders of any kind, or one with its own account"
    )
    parser.add_argument("a", type=Path, metavar="A", help="Hugging Face folder or checkpoint")
    parser.add_argument("b", type=Path, metavar="B", nargs="?", help="the other one, if any")
    parser.add_argument(
        "--hf-ref", type=Path, metavar="DIR", help="Hugging Face folder, for its config"
    )
    parser.add_argument("--threads", type=count, default=0, help="reading threads")
    parser.add_argument("--partial", action="store_true", help="the folder holds some ranks only")
    add_dir(parser, "--adapter", "A must be B with this adapter merged", required=False)
    parser.add_argument(
        "--max-ulps",
        type=float,
        default=1.0,
        metavar="U",
        help="deviation from B + adapter allowed",
    )
    add_dir(parser, "--task", "task folder with profile.yaml, for --adapter", required=False)
    add_scale(parser)
    add_iteration(parser)
    finish(parser, _run_verify)


def finish(parser: argparse.ArgumentParser, run: object) -> None:
    """Give a command its `--json` and what carries it out."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def _run_hf_to_mm(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from taskpack.weights import hf_to_mm

    layout, where = required(read_layout_flags(args), "--tp, --llm-layers and --vit-layers")
    if args.vit_only:
        layout = replace(layout, modules=("vision",))
    account = hf_to_mm(
        args.hf,
        args.mm,
        layout=layout,
        options=read_options(args, chosen_ranks(args, layout)),
        where=where,
    )
    return report(args, account.to_json(), f"{args.mm}: {account}")


def _run_mm_to_hf(args: argparse.Namespace) -> int:
    from taskpack.weights import mm_to_hf

    layout, where = read_layout_flags(args)
    account = mm_to_hf(
        args.mm,
        args.hf_ref,
        args.hf,
        layout=layout,
        iteration=args.iteration,
        options=read_options(args),
        where=where,
    )
    return report(args, account.to_json(), f"{args.hf}: {account}")


def _run_resplit(args: argparse.Namespace) -> int:
    from taskpack.weights import resplit
    from taskpack.weights.hf_config import read_hf_config
    from taskpack.weights.task import task_model

    model = read_hf_config(args.hf_ref) if args.hf_ref else None
    profile = task_profile(args)
    if model is None and profile is not None:
        model = task_model(profile)
    source, where = read_layout_flags(args)
    target, _ = required(
        read_layout_flags(args, "to_"), "--to-tp, --to-llm-layers and --to-vit-layers"
    )
    account = resplit(
        args.mm,
        args.out,
        target=target,
        source=source,
        model=model,
        iteration=args.iteration,
        options=read_options(args, chosen_ranks(args, target)),
        where=where,
    )
    return report(args, account.to_json(), f"{args.out}: {account}")


def _run_verify(args: argparse.Namespace) -> int:
    of_adapter = ("task", "targets", "alpha", "r")
    if args.b is None:
        refuse_unread(args, "B", "adapter", "hf_ref", *of_adapter)
        return _run_verify_account(args)
    if args.adapter is not None:
        return _run_verify_merge(args)
    refuse_unread(args, "--adapter", *of_adapter)
    from taskpack.weights import verify_equal

    result = verify_equal(
        args.a, args.b, hf_ref=args.hf_ref, iteration=args.iteration, threads=args.threads
    )
    return report(args, result, f"{args.a} and {args.b}: {result['tensors']} tensors are equal")


def _run_verify_account(args: argparse.Namespace) -> int:
    from taskpack.weights import verify_account

    result = verify_account(args.a, threads=args.threads, partial=args.partial)
    return report(args, result, f"{args.a}: {result['tensors']} tensors are as written")


def _run_verify_merge(args: argparse.Namespace) -> int:
    keep_blas_single()
    from taskpack.weights import verify_merge

    merge = read_merge(args, of_task=False)
    result = verify_merge(
        args.a,
        args.b,
        args.adapter,
        hf_ref=args.hf_ref,
        iteration=args.iteration,
        targets=merge.targets,
        lora=merge.lora,
        max_ulps=args.max_ulps,
        threads=args.threads,
    )
    text = (
        f"{args.a}: {result['targets']} targets are {args.b} plus the adapter, to"
        f" {result['max_ulps']:.3g} units of last place ({result['differing_share']:.2%} are not"
        f" the exact value rounded once); {result['unchanged']} other tensors are unchanged"
    )
    return report(args, result, text)


def _run_inspect(args: argparse.Namespace) -> int:
    from taskpack.weights.inspect import inspect_folder, inspect_text

    found = inspect_folder(args.dir, iteration=args.iteration)
    return report(args, found, inspect_text(found))


def report(args: argparse.Namespace, result: dict[str, Any], text: str) -> int:
    """Print a result, for a machine or a person."""
    print(json.dumps(result) if args.json else text)
    return 0
