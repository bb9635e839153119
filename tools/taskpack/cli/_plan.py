"""The command `plan`: a run proved on a laptop."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.cli._render import add_set, load, positive
from taskpack.errors import ProfileError

if TYPE_CHECKING:
    from taskpack.plan.report import Plan


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    plan = commands.add_parser("plan", help="prove a run before it starts")
    plan.add_argument("model", help="task to plan")
    plan.add_argument("--hf", type=Path, metavar="DIR", help="check these weights, as published")
    plan.add_argument("--mm", type=Path, metavar="DIR", help="check these converted weights")
    plan.add_argument(
        "--data",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="check this data file; may be given several times",
    )
    cluster = plan.add_mutually_exclusive_group()
    cluster.add_argument("--nodes", type=positive, metavar="N", help="plan for N nodes")
    cluster.add_argument("--npus", type=positive, metavar="N", help="plan for N NPUs in all")
    plan.add_argument("--hbm", type=positive, metavar="GIB", help="memory of an NPU (default: 64)")
    add_set(plan)
    plan.add_argument(
        "--suggest", action="store_true", help="give layouts for the NPUs instead, best first"
    )
    plan.add_argument("--png", type=Path, metavar="FILE", help="draw pipeline and memory")
    plan.add_argument("--svg", type=Path, metavar="FILE", help="the same as a vector picture")
    plan.add_argument("--json", action="store_true", help="print the result as JSON")
    plan.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    return _run_suggest(args) if args.suggest else _run_plan(args)


def _run_plan(args: argparse.Namespace) -> int:
    from taskpack.plan.report import Given, make_plan, plan_json
    from taskpack.plan.text import plan_text

    overrides = [*args.overrides, *_cluster(args)]
    profile = load(args.model, overrides)
    changed = overrides if profile != load(args.model) else []
    given = Given(
        hf=args.hf, mm=args.mm, data=tuple(args.data), hbm_gib=args.hbm, overrides=changed
    )
    plan = make_plan(profile, given)
    _draw(plan, args)
    print(json.dumps(plan_json(plan)) if args.json else plan_text(plan))
    return 1 if plan.failed else 0


def _draw(plan: Plan, args: argparse.Namespace) -> None:
    if args.png is None and args.svg is None:
        return
    from taskpack.plan.draw import draw

    if args.png is not None:
        draw(plan, args.png, "png")
    if args.svg is not None:
        draw(plan, args.svg, "svg")


def _run_suggest(args: argparse.Namespace) -> int:
    from taskpack.plan.memory import hbm_bytes
    from taskpack.plan.suggest import measure, suggest_or_fail
    from taskpack.plan.suggest_text import suggestions_json, suggestions_text

    _refuse_beside_suggest(args)
    profile = load(args.model, args.overrides)
    nodes = args.nodes or profile.platform.nodes
    npus = args.npus or nodes * profile.platform.npus_per_node
    hbm = hbm_bytes(profile, args.hbm)
    found, own = suggest_or_fail(profile, npus, hbm), measure(profile, hbm)
    print(json.dumps(suggestions_json(found, own)) if args.json else suggestions_text(found, own))
    return 0


def _refuse_beside_suggest(args: argparse.Namespace) -> None:
    given = [f"--{name}" for name in ("hf", "mm", "data", "png", "svg") if getattr(args, name)]
    if given:
        raise ProfileError(
            f"--suggest does not look at {', '.join(given)}",
            where="taskpack plan --suggest",
            why="weights, rows and pictures belong to one layout, and it lists several",
            fix="choose a layout first, then plan with it",
        )


def _cluster(args: argparse.Namespace) -> list[str]:
    """Give the values of the profile that the options of the cluster stand for."""
    if args.nodes:
        return [f"platform.nodes={args.nodes}"]
    if args.npus:
        from taskpack.plan.cluster import split_npus

        per_node = load(args.model, args.overrides).platform.npus_per_node
        nodes, each = split_npus(args.npus, per_node)
        return [f"platform.nodes={nodes}", f"platform.npus_per_node={each}"]
    return []
