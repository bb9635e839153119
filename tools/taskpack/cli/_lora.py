"""Commands on adapters: lora merge, to-peft, from-peft, and export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.cli._weights import finish, report
from taskpack.cli._weights_args import (
    add_common,
    add_device,
    add_dir,
    add_iteration,
    add_layout,
    add_scale,
    add_untie,
    keep_blas_single,
    note_device,
    read_layout_flags,
    read_merge,
    read_options,
    refuse_unread,
    required,
    task_profile,
)
from taskpack.errors import ProfileError

if TYPE_CHECKING:
    from taskpack.weights import HfConfig

Commands = argparse._SubParsersAction


def register(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    lora = commands.add_parser("lora", help="merge and convert LoRA adapters")
    actions = lora.add_subparsers(dest="action", required=True, metavar="ACTION")
    _register_merge(actions)
    _register_to_peft(actions)
    _register_from_peft(actions)
    _register_export(commands)


def _add_adapter(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    add_dir(parser, "--adapter", "adapter checkpoint, or peft folder", required=needed)
    add_dir(parser, "--task", "task folder with profile.yaml", required=False)
    add_scale(parser)
    add_device(parser)


def _register_merge(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("merge", help="merge an adapter into base rank files")
    add_dir(parser, "--base", "base checkpoint")
    add_dir(parser, "--out", "checkpoint folder to make")
    _add_adapter(parser)
    add_iteration(parser)
    add_common(parser)
    finish(parser, _run_merge)


def _register_to_peft(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("to-peft", help="write a checkpoint's adapter as a peft folder")
    add_dir(parser, "--adapter", "adapter checkpoint")
    add_dir(parser, "--out", "peft folder to make")
    add_dir(parser, "--hf-ref", "Hugging Face folder of the base, for its config", required=False)
    add_dir(parser, "--task", "task folder with profile.yaml", required=False)
    parser.add_argument("--alpha", type=float, help="LoRA alpha, where nothing else tells it")
    parser.add_argument("--r", type=int, help="LoRA rank")
    parser.add_argument(
        "--names",
        choices=("new", "old"),
        default="new",
        help="module names of transformers 4.52 and later, or of earlier ones",
    )
    add_iteration(parser)
    add_common(parser)
    finish(parser, _run_to_peft)


def _register_from_peft(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("from-peft", help="cut a peft adapter into rank files")
    add_dir(parser, "--peft", "peft folder")
    add_dir(parser, "--out", "checkpoint folder to make")
    add_dir(parser, "--hf-ref", "Hugging Face folder of the base, for its config", required=False)
    add_layout(parser)
    parser.add_argument(
        "--expand-rank",
        action="store_true",
        help="fuse modules whose lora_A differ, exactly, with a larger rank",
    )
    add_common(parser)
    finish(parser, _run_from_peft)


def _register_export(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export", help="base, and adapter if any, to a Hugging Face folder in one pass"
    )
    add_dir(parser, "--base", "base checkpoint, or Hugging Face folder")
    add_dir(parser, "--hf-ref", "original Hugging Face folder: config, names and side files")
    add_dir(parser, "--hf", "Hugging Face folder to make")
    _add_adapter(parser, needed=False)
    add_iteration(parser)
    add_untie(parser)
    add_common(parser)
    finish(parser, _run_export)


def _run_merge(args: argparse.Namespace) -> int:
    keep_blas_single()
    from taskpack.weights import lora_merge
    from taskpack.weights.task import task_layout, task_model

    note_device(args)
    merge = read_merge(args)
    profile = task_profile(args)
    done = lora_merge(
        args.base,
        args.adapter,
        args.out,
        model=task_model(profile) if profile is not None else None,
        layout=task_layout(profile) if profile is not None else None,
        iteration=args.iteration,
        targets=merge.targets,
        lora=merge.lora,
        options=read_options(args),
    )
    return report(args, done.to_json(), f"{args.out}: {done}")


def _model(args: argparse.Namespace) -> HfConfig | None:
    from taskpack.weights import read_hf_config
    from taskpack.weights.task import task_model

    if args.hf_ref is not None:
        return read_hf_config(Path(args.hf_ref))
    profile = task_profile(args)
    return task_model(profile) if profile is not None else None


def _run_to_peft(args: argparse.Namespace) -> int:
    from taskpack.weights.adapter_convert import lora_to_peft

    said = {"--alpha and --r": (args.alpha, args.r)}
    profile = task_profile(args)
    if profile is not None:
        said["the profile"] = (profile.tuning.lora.alpha, profile.tuning.lora.r)
    account = lora_to_peft(
        args.adapter,
        args.out,
        model=_model(args),
        iteration=args.iteration,
        lora=said,
        old_names=args.names == "old",
        options=read_options(args),
    )
    return report(args, account.to_json(), f"{args.out}: {account}")


def _run_from_peft(args: argparse.Namespace) -> int:
    from taskpack.weights.adapter_convert import expanded_peft_to_mm, peft_to_mm

    layout, where = required(read_layout_flags(args), "--tp, --llm-layers and --vit-layers")
    model = _model(args)
    if model is None:
        raise ProfileError(
            "the base model is not named",
            where="command line",
            why="heads and layers of the base decide where rows of the adapter go",
            fix="give --hf-ref DIR, or --task tasks/MODEL",
        )
    convert = expanded_peft_to_mm if args.expand_rank else peft_to_mm
    account = convert(
        args.peft, model, args.out, layout=layout, options=read_options(args), where=where
    )
    return report(args, account.to_json(), f"{args.out}: {account}")


def _run_export(args: argparse.Namespace) -> int:
    keep_blas_single()
    from taskpack.weights import export
    from taskpack.weights.task import task_layout

    lora = {}
    targets: list[str] = []
    profile = task_profile(args)
    layout = task_layout(profile) if profile is not None else None
    if args.adapter is None:
        refuse_unread(args, "--adapter", "targets", "alpha", "r")
    else:
        note_device(args)
        merge = read_merge(args)
        targets, lora = list(merge.targets), dict(merge.lora)
    done = export(
        args.base,
        args.hf_ref,
        args.hf,
        adapter_dir=args.adapter,
        layout=layout,
        iteration=args.iteration,
        targets=targets,
        lora=lora,
        options=read_options(args),
    )
    return report(args, done.to_json(), f"{args.hf}: {done}")
