"""Commands of the `data` group."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    group = commands.add_parser("data", help="make data files that MindSpeed-MM reads")
    verbs = group.add_subparsers(dest="verb", required=True, metavar="VERB")
    convert = verbs.add_parser(
        "convert",
        help="convert LLaVA files (human/gpt turns) to MindSpeed-MM rows",
        description="Convert JSON files to one file of MindSpeed-MM rows; every row is counted.",
    )
    convert.add_argument("inputs", nargs="+", type=Path, metavar="IN", help="JSON arrays of rows")
    convert.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    convert.add_argument(
        "--from", dest="form", choices=["llava"], required=True, help="form of the input rows"
    )
    convert.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder of the images (default: IN's folder)"
    )
    convert.add_argument(
        "--on-bad",
        choices=["fail", "drop", "list"],
        default="fail",
        help="fail: write nothing; drop: leave bad rows out; list: only name every bad row",
    )
    convert.add_argument("--overwrite", action="store_true", help="replace OUT if it is there")
    convert.add_argument("--json", action="store_true", help="print the account as JSON")
    convert.set_defaults(run=_convert)


def _convert(args: argparse.Namespace) -> int:
    from taskpack.data import Finding, OnBad, convert_llava

    on_bad = OnBad(args.on_bad)

    def report(finding: Finding) -> None:
        if on_bad is not OnBad.FAIL:
            print(finding, file=sys.stderr)

    account = convert_llava(
        args.inputs,
        args.output,
        media_root=args.media_root,
        on_bad=on_bad,
        overwrite=args.overwrite,
        report=report,
    )
    print(json.dumps(account.to_json()) if args.json else account.summary())
    return 1 if on_bad is OnBad.LIST and account.counts else 0
