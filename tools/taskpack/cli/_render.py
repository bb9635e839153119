"""Commands of the `render` group: models, profile, render, plan."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from taskpack.errors import ProfileError, raise_collected
from taskpack.paths import task_dir, tasks_root


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this group."""
    render = commands.add_parser("render", help="write the files of a task from its profile")
    render.add_argument("model", nargs="?", help="task to render")
    render.add_argument("--all", action="store_true", help="render every task")
    render.add_argument("--release", help="render for this MindSpeed-MM release")
    _add_set(render)
    render.add_argument("--out", type=Path, help="folder to write to instead of the task's own")
    render.add_argument("--check", action="store_true", help="write nothing, report differences")
    _add_json(render)
    render.set_defaults(run=_run_render)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="replace a value of the profile, for example train.lr=2e-5",
    )  # fmt: skip


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _run_render(args: argparse.Namespace) -> int:
    from taskpack.profile import load_profile
    from taskpack.render import check_pack, check_task, render_pack, render_task

    models = _models(args)
    overrides = [*args.overrides, *([f"release={args.release}"] if args.release else [])]
    profiles = [load_profile(task_dir(model) / "profile.yaml", overrides) for model in models]
    root = tasks_root()
    if args.check:
        failures = [
            failure
            for profile in profiles
            for failure in check_task(profile, args.out or root / profile.model)
        ]
        failures += [] if args.out else check_pack(root)
        raise_collected(failures)
        return _report([], [f"{model} is up to date" for model in models], as_json=args.json)
    changed = [
        path
        for profile in profiles
        for path in render_task(profile, args.out or root / profile.model)
    ]
    changed += [] if args.out else render_pack(root)
    lines = [str(path) for path in changed] or ["nothing changed"]
    return _report(changed, lines, as_json=args.json)


def _models(args: argparse.Namespace) -> list[str]:
    if args.all == bool(args.model) or (args.all and args.out):
        raise ProfileError(
            "render needs one task, or --all without --out",
            where="taskpack render",
            why="each task is a folder of its own",
            fix="name a task: taskpack render qwen2.5vl-32b",
        )
    if not args.all:
        return [args.model]
    return sorted(path.parent.name for path in tasks_root().glob("*/profile.yaml"))


def _report(changed: list[Path], lines: list[str], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"changed": [str(path) for path in changed]}))
    else:
        print("\n".join(lines))
    return 0
