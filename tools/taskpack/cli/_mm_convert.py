"""`taskpack mm-convert`: the stock converter's command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.cli._parser import Parser
from taskpack.cli._weights_args import add_device, count, keep_blas_single, note_device

if TYPE_CHECKING:
    from taskpack.weights import Options

_USAGE = """taskpack mm-convert CONVERTER ACTION --cfg.KEY VALUE ... [--config FILE]
       taskpack mm-convert merge_base_lora_weight --base_save_dir DIR ...

converters: Qwen2_5_VLConverter, Qwen2VLConverter
actions:    hf_to_mm, mm_to_hf, resplit, lora_hf_to_mm, lora_mm_to_hf
besides:    --overwrite, --resume, --threads N, --json"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "mm-convert", help="the stock converter's commands, unchanged", usage=_USAGE
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--threads", type=count, default=0, help="copying threads")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at the output")
    parser.set_defaults(run=_run, takes_unknown=True)


def _run(args: argparse.Namespace) -> int:
    keep_blas_single()
    from taskpack.weights import Options
    from taskpack.weights.mm_convert import run_request
    from taskpack.weights.mm_request import parse_request

    options = Options(threads=args.threads, resume=args.resume, overwrite=args.overwrite)
    if args.unknown[:1] == ["merge_base_lora_weight"]:
        return _merge(args.unknown[1:], options, as_json=args.json)
    account = run_request(parse_request(args.unknown), options)
    print(json.dumps(account.to_json()) if args.json else account)
    return 0


def _merge(arguments: Sequence[str], options: Options, *, as_json: bool) -> int:
    from taskpack.weights.mm_convert import merge_base_lora_weight

    parser = Parser(prog="taskpack mm-convert merge_base_lora_weight")
    for name in ("base_save_dir", "lora_save_dir", "merge_save_dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--lora_target_modules", nargs="+", required=True)
    # the stock defaults, 16 and 8, would be a guess where the adapter tells its own
    parser.add_argument("--lora_alpha", type=float)
    parser.add_argument("--lora_r", type=int)
    parser.add_argument("--pp_size", type=int, default=1)
    parser.add_argument("--tp_size", type=int, default=1)
    add_device(parser)
    given = parser.parse_args(arguments)
    note_device(given)
    report = merge_base_lora_weight(
        given.base_save_dir,
        given.lora_save_dir,
        given.merge_save_dir,
        targets=given.lora_target_modules,
        alpha=given.lora_alpha,
        r=given.lora_r,
        tp_size=given.tp_size,
        pp_size=given.pp_size,
        options=options,
    )
    print(json.dumps(report.to_json()) if as_json else report)
    return 0
