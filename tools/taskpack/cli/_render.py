"""Commands of the `render` group: models, profile, render, diff-upstream."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taskpack.errors import ProfileError, raise_collected
from taskpack.paths import task_dir, tasks_root

if TYPE_CHECKING:
    from taskpack.profile import Profile


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    models = commands.add_parser("models", help="list the tasks and what they need")
    _finish(models, _run_models)
    _register_profile(commands)
    _register_render(commands)
    _register_upstream(commands)


def _register_profile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    profile = commands.add_parser("profile", help="write a profile")
    actions = profile.add_subparsers(dest="action", required=True, metavar="ACTION")
    from_hf = actions.add_parser("from-hf", help="write the profile of a model not here yet")
    from_hf.add_argument("dir", type=Path, help="Hugging Face folder; its config.json is read")
    from_hf.add_argument("--name", required=True, help="name of the new task")
    from_hf.add_argument("--tp", type=positive, help="tensor parallel size")
    from_hf.add_argument("--nodes", type=positive, help="nodes of 8 NPUs")
    _finish(from_hf, _run_from_hf)


def _register_render(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    render = commands.add_parser("render", help="write the files of a task from its profile")
    what = render.add_mutually_exclusive_group(required=True)
    what.add_argument("model", nargs="?", help="task to render")
    what.add_argument("--all", action="store_true", help="render every task")
    render.add_argument("--release", help="render for this MindSpeed-MM release")
    add_set(render)
    render.add_argument("--out", type=Path, help="folder to write to instead of the task's own")
    render.add_argument("--check", action="store_true", help="write nothing, report differences")
    _finish(render, _run_render)


def _register_upstream(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    upstream = commands.add_parser(
        "diff-upstream", help="show how a task differs from MindSpeed-MM's own example"
    )
    upstream.add_argument("model", help="task to compare")
    upstream.add_argument("--release", help="compare with this MindSpeed-MM release")
    add_set(upstream)
    _finish(upstream, _run_upstream)


def _finish(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set KEY=VALUE`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="replace a value of the profile, for example train.lr=2e-5",
    )


def positive(text: str) -> int:
    """Read a whole number from 1.

    Raises:
        argparse.ArgumentTypeError: The text is none.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def load(model: str, overrides: Sequence[str] = ()) -> Profile:
    """Load the profile of a task, with values of it replaced."""
    from taskpack.profile import load_profile

    return load_profile(task_dir(model) / "profile.yaml", overrides)


def _load_all(models: Sequence[str], overrides: Sequence[str]) -> list[Profile]:
    """Load several profiles; the faults of all of them are reported together."""
    profiles, errors = [], []
    for model in models:
        try:
            profiles.append(load(model, overrides))
        except ProfileError as error:
            errors.append(error)
    raise_collected(errors)
    return profiles


def _all_models() -> list[str]:
    return sorted(path.parent.name for path in tasks_root().glob("*/profile.yaml"))


def _run_models(args: argparse.Namespace) -> int:
    from taskpack.plan.models import models_json, models_text

    profiles = [load(model) for model in _all_models()]
    print(json.dumps({"models": models_json(profiles)}) if args.json else models_text(profiles))
    return 0


def _run_upstream(args: argparse.Namespace) -> int:
    from taskpack.render.upstream import upstream_json, upstream_text

    profile = load(args.model, _overrides(args))
    print(json.dumps(upstream_json(profile)) if args.json else upstream_text(profile))
    return 0


def _overrides(args: argparse.Namespace) -> list[str]:
    return [*args.overrides, *([f'release="{args.release}"'] if args.release else [])]


def _run_from_hf(args: argparse.Namespace) -> int:
    from taskpack.plan.report import make_plan, plan_json
    from taskpack.plan.text import plan_text
    from taskpack.render.new_profile import write_profile

    tasks = tasks_root()
    plan = make_plan(write_profile(args.dir, args.name, tasks, nodes=args.nodes, tp=args.tp))
    if args.json:
        print(json.dumps(plan_json(plan)))
    else:
        print(f"{plan_text(plan)}\n\nwritten: {tasks / args.name / 'profile.yaml'}")
    return 0


def _run_render(args: argparse.Namespace) -> int:
    from taskpack.render import check_pack, check_task, render_pack, render_task

    models = _all_models() if args.all else [args.model]
    if args.out and len(models) > 1:
        raise ProfileError(
            f"{len(models)} tasks cannot share the folder {args.out}",
            where="--out",
            why="each task is a folder of its own",
            fix="name one task, or leave --out out",
        )
    overrides = _overrides(args)
    profiles = _load_all(models, overrides)
    root = tasks_root()
    folders = [(profile, args.out or root / profile.model) for profile in profiles]
    if args.check:
        failures = [failure for pair in folders for failure in check_task(*pair)]
        raise_collected(failures if args.out else [*failures, *check_pack(root)])
        return _report([], [f"{model} is what its profile renders to" for model in models], args)
    if overrides and not args.out:
        hint = "the profile itself is unchanged, so `render --check` will name these files"
        print(f"note: rendered with {', '.join(overrides)}; {hint}", file=sys.stderr)
    changed = [path for pair in folders for path in render_task(*pair)]
    changed += [] if args.out else render_pack(root)
    return _report(changed, [str(path) for path in changed] or ["nothing to change"], args)


def _report(changed: Sequence[Path], lines: Sequence[str], args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps({"changed": [str(path) for path in changed]}))
    else:
        print("\n".join(lines))
    return 0
