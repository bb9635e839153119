"""Commands of the `data` group."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

FORMATS = (
    "llava", "sharegpt", "openai", "llama-factory", "alpaca", "mindspeed-mm", "ms-swift",
    "geometry3k",
)  # fmt: skip


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    group = commands.add_parser("data", help="make and check data files that MindSpeed-MM reads")
    verbs = group.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_convert(verbs)
    _add_check(verbs)
    _add_stats(verbs)
    _add_makers(verbs)


def _add_convert(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = verbs.add_parser(
        "convert",
        help="convert rows of any known format to MindSpeed-MM rows",
        description="Convert files of rows to one file of MindSpeed-MM rows; every row is counted. "
        "Inputs are JSON arrays, JSON lines (both also as gzip) or parquet; OUT is an array, or "
        "lines when its name ends in .jsonl.",
    )
    convert.add_argument("inputs", nargs="+", type=Path, metavar="IN", help="files or patterns")
    convert.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    convert.add_argument(
        "--from", dest="form", choices=FORMATS, help="format of the rows (default: found out)"
    )
    convert.add_argument(
        "--media", choices=["images", "videos"], help="kind of media (default: the first row's)"
    )
    convert.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder of the media (default: IN's folder)"
    )
    convert.add_argument(
        "--relative-to", type=Path, metavar="DIR", help="spell media paths from here: data.dir"
    )
    convert.add_argument(
        "--max-samples", type=_count, metavar="N", help="read only the first N rows"
    )
    convert.add_argument(
        "--split", type=_shares, default=(), metavar="A,B", help="shares: OUT_train, OUT_val, ..."
    )
    convert.add_argument("--shuffle", action="store_true", help="write the rows in a drawn order")
    convert.add_argument("--seed", type=_count, default=42, help="start of draws (default: 42)")
    convert.add_argument(
        "--shard", type=_shard, metavar="I/N", help="convert the I-th of N runs of rows, from 0"
    )
    convert.add_argument(
        "--on-bad",
        choices=["fail", "drop", "list"],
        default="fail",
        help="fail: write nothing; drop: leave bad rows out; list: only name every bad row",
    )
    convert.add_argument(
        "--fix", action="store_true", help="repair markers where only one way is right; list them"
    )
    _add_workers(convert)
    convert.add_argument(
        "--resume", action="store_true", help="go on with an interrupted conversion"
    )
    convert.add_argument("--overwrite", action="store_true", help="replace OUT if it is there")
    convert.add_argument("--json", action="store_true", help="print the account as JSON")
    convert.set_defaults(run=_convert)


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=_count, metavar="N", help="processes beside this one (default: by size)"
    )
    parser.add_argument(
        "--engine",
        choices=["local", "ray"],
        default="local",
        help="ray: run them on the Ray cluster of RAY_ADDRESS, or on one started here",
    )


def _add_check(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = verbs.add_parser(
        "check",
        help="find rows that the trainer would drop or stop at",
        description="Judge every row as the trainer of a task will. Exit 1 when rows are bad.",
    )
    _add_task(check)
    check.add_argument("--deep", action="store_true", help="decode every image whole")
    check.add_argument(
        "--max-bad", type=_count, default=0, metavar="N", help="bad rows to accept (default: 0)"
    )
    check.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page")
    check.add_argument("--bad-out", type=Path, metavar="FILE", help="write bad rows, one a line")
    check.set_defaults(run=_check)


def _add_stats(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stats = verbs.add_parser(
        "stats",
        help="show sizes, tokens, padding and steps per epoch",
        description="Measure the good rows of files as a task will train on them.",
    )
    _add_task(stats)
    stats.add_argument("--html", type=Path, metavar="FILE", help="write a page with pictures")
    stats.add_argument("--png", type=Path, metavar="FILE", help="draw the tokens per row")
    stats.set_defaults(run=_stats)


def _add_makers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mock = verbs.add_parser(
        "mock",
        help="make up rows and pictures for performance runs",
        description="Make up rows and pictures; the same seed gives the same files.",
    )
    mock.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    mock.add_argument("--rows", type=_count, default=1000, metavar="N", help="default: 1000")
    mock.add_argument(
        "--sizes", type=_sizes, default=((448, 448),), metavar="WxH,...", help="default: 448x448"
    )
    mock.add_argument("--images", type=_count, default=1, metavar="N", help="per row (default: 1)")
    mock.add_argument("--words", type=_count, default=40, help="of an answer (default: 40)")
    mock.add_argument("--seed", type=_count, default=42, help="default: 42")
    mock.add_argument("--overwrite", action="store_true", help="replace OUT if it is there")
    mock.add_argument("--json", action="store_true", help="print the counts as JSON")
    mock.set_defaults(run=_mock)
    geo = verbs.add_parser(
        "geo3k",
        help="convert geometry3k for reinforcement learning, or with --sft for fine-tuning",
        description="Write train.parquet and test.parquet as the RL examples read them.",
    )
    geo.add_argument("source", type=Path, metavar="DIR", help="folder with geometry3k's parquet")
    geo.add_argument("output", type=Path, metavar="OUT", help="folder to write to")
    geo.add_argument("--sft", action="store_true", help="write messages and image files instead")
    geo.add_argument("--overwrite", action="store_true", help="replace files that are there")
    geo.add_argument("--json", action="store_true", help="print the counts as JSON")
    geo.set_defaults(run=_geo3k)


def _sizes(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [size.split("x") for size in text.split(",")]
    if not all(
        len(p) == 2 and all(s.isdecimal() and 0 < int(s) < 10_000 for s in p) for p in pairs
    ):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes such as 448x448,1280x720")
    return tuple((int(width), int(height)) for width, height in pairs)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="files or patterns (default: data.files)",
    )
    parser.add_argument(
        "--task", type=Path, required=True, metavar="DIR", help="the task that trains on them"
    )
    parser.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder of the media (default: data.dir)"
    )
    _add_workers(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers") from None


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal() or int(part) >= int(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N-1")
    return int(part), int(parts)


def _convert(args: argparse.Namespace) -> int:
    from taskpack.data import ConvertOptions, Finding, Format, Media, OnBad, convert
    from taskpack.data.pool import Engine

    on_bad = OnBad(args.on_bad)

    def report(finding: Finding) -> None:
        if on_bad is not OnBad.FAIL:
            print(finding, file=sys.stderr)

    options = ConvertOptions(
        form=Format(args.form) if args.form else None,
        media=Media(args.media) if args.media else None,
        media_root=args.media_root,
        relative_to=args.relative_to,
        max_samples=args.max_samples,
        split=args.split,
        shuffle=args.shuffle,
        seed=args.seed,
        on_bad=on_bad,
        fix=args.fix,
        shard=args.shard,
        workers=args.workers,
        engine=Engine(args.engine),
        resume=args.resume,
        overwrite=args.overwrite,
    )
    account = convert(
        args.inputs,
        args.output,
        options,
        report=report,
        tell=lambda line: print(line, file=sys.stderr),
    )
    print(json.dumps(account.to_json()) if args.json else account.summary())
    return 1 if on_bad is OnBad.LIST and account.found.bad else 0


def _check(args: argparse.Namespace) -> int:
    from taskpack.data.check import CheckOptions, check
    from taskpack.data.check_page import check_page, write_page
    from taskpack.data.pool import Engine
    from taskpack.data.task import open_task

    profile, checkout = open_task(args.task)
    inputs = args.inputs or [checkout / name for name in profile.data.files]
    options = CheckOptions(
        media_root=args.media_root,
        deep=args.deep,
        workers=args.workers,
        engine=Engine(args.engine),
        bad_out=args.bad_out,
    )
    report = check(inputs, profile, checkout, options)
    if args.report:
        write_page(args.report, check_page(report, [str(path) for path in inputs]))
    print(json.dumps(report.to_json()) if args.json else "\n".join(report.lines()))
    return 1 if report.failed(args.max_bad) else 0


def _stats(args: argparse.Namespace) -> int:
    from taskpack.data.check import CheckOptions
    from taskpack.data.check_page import write_page
    from taskpack.data.pool import Engine
    from taskpack.data.stats import bars, collect_stats
    from taskpack.data.stats_page import save_plot, stats_page
    from taskpack.data.task import open_task

    profile, checkout = open_task(args.task)
    inputs = args.inputs or [checkout / name for name in profile.data.files]
    options = CheckOptions(
        media_root=args.media_root, workers=args.workers, engine=Engine(args.engine)
    )
    stats = collect_stats(inputs, profile, checkout, options)
    if args.html:
        write_page(args.html, stats_page(stats))
    if args.png:
        save_plot(stats, args.png)
    if args.json:
        print(json.dumps(stats.to_json()))
        return 0
    for name, value in stats.facts():
        print(f"{name:<26} {value}")
    print("\n".join(["rows by tokens:", *bars(stats.histogram())]))
    return 0


def _mock(args: argparse.Namespace) -> int:
    from taskpack.data.mock import MockOptions, describe, make_mock

    options = MockOptions(
        rows=args.rows,
        sizes=args.sizes,
        images=args.images,
        words=args.words,
        seed=args.seed,
        overwrite=args.overwrite,
    )
    print(describe(make_mock(args.output, options), as_json=args.json))
    return 0


def _geo3k(args: argparse.Namespace) -> int:
    from taskpack.data.geo3k import convert_geo3k, convert_geo3k_sft

    if args.sft:
        accounts = convert_geo3k_sft(args.source, args.output, overwrite=args.overwrite)
        rows = {name: count for account in accounts for name, count in account.outputs.items()}
    else:
        rows = convert_geo3k(args.source, args.output, overwrite=args.overwrite)
    if args.json:
        print(json.dumps({"outputs": rows}))
    else:
        print("\n".join(f"{name}: {count} rows" for name, count in rows.items()))
    return 0
