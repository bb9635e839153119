"""Commands of the `rehearse` group."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

LEAST_STEPS = 3


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    parser = commands.add_parser(
        "rehearse",
        help="run a task's scripts end to end on this CPU with a narrow copy of its model",
        description=(
            "Render a narrow twin of the task, convert, fine-tune, merge and export it with the "
            "task's own scripts, and check the result. TUNING=full|lora is honoured."
        ),
    )
    parser.add_argument("model", metavar="MODEL", help="name of a task")
    parser.add_argument("--hf", type=Path, metavar="DIR", help="use its tokenizer and processor")
    parser.add_argument("--data", type=Path, metavar="FILE", help="use its rows (either form)")
    parser.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder of the rows' images (with --data)"
    )
    parser.add_argument("--steps", type=_steps, metavar="N", help=f"steps, from {LEAST_STEPS}")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the scratch checkout here")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="a.b=v",
        help="replace a value of the profile",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_rehearse)


def _steps(text: str) -> int:
    steps = int(text)
    if steps < LEAST_STEPS:
        raise argparse.ArgumentTypeError(f"{steps} steps cannot show a falling loss")
    return steps


def _rehearse(args: argparse.Namespace) -> int:
    from taskpack.rehearse.rehearsal import Order, rehearse
    from taskpack.rehearse.runner import Sources, progress_stream

    order = Order(
        args.model,
        overrides=args.overrides,
        sources=Sources(args.hf, args.data, args.media_root),
        steps=args.steps,
        report=args.report,
        keep=args.keep,
    )
    outcome = rehearse(order, out=progress_stream(as_json=args.json))
    if args.json:
        print(json.dumps(outcome.to_json()))
    else:
        print(outcome.table())
        print(f"{outcome.limits}")
        print(f"rehearsal of {outcome.model} ({outcome.tuning}) ", end="")
        print(f"{'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.0f} s")
    return 0 if outcome.passed else 1
