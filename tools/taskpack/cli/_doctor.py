"""The command `doctor`: is this machine ready, and why did a run end."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its verb."""
    doctor = commands.add_parser(
        "doctor",
        help="check this machine and its versions; explain a failed log",
        description="Look at NPUs, versions, memory, disks and network of this machine; nothing is "
        "changed. Exit 1 when something would stop or spoil a run.",
    )
    doctor.add_argument(
        "--task", type=Path, metavar="DIR", help="hold the machine against this task's profile"
    )
    doctor.add_argument(
        "--hosts", type=_hosts, default=(), metavar="A,B", help="ask these nodes too, over ssh"
    )
    doctor.add_argument("--json", action="store_true", help="print the result as JSON")
    doctor.set_defaults(run=_run_doctor)
    verbs = doctor.add_subparsers(dest="verb", metavar="explain")
    explain = verbs.add_parser(
        "explain",
        help="find the first real error in the logs of a run",
        description="Find the first real error in the logs of one run, of one or several nodes, "
        "and say what to do. Exit 1 when nothing is found.",
    )
    explain.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="text, or gzip of it")
    # without SUPPRESS the default would undo a --json in front of the verb
    explain.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON"
    )
    explain.set_defaults(run=_run_explain)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in text.split(","))
    # ssh would take a name with a dash in front for an option
    if not all(re.fullmatch(r"[\w][\w.:@%-]*", host) for host in hosts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of hosts like node-0,node-1")
    return hosts


def _run_doctor(args: argparse.Namespace) -> int:
    from taskpack.launch.case import Case
    from taskpack.launch.doctor import doctor_json, doctor_text, examine, failed
    from taskpack.profile import load_profile

    profile = load_profile(args.task / "profile.yaml") if args.task else None
    case = Case(profile=profile, task=args.task, hosts=args.hosts)
    lines = examine(case)
    print(json.dumps(doctor_json(case, lines)) if args.json else doctor_text(lines))
    return 1 if failed(lines) else 0


def _run_explain(args: argparse.Namespace) -> int:
    from taskpack.launch.explain import explain
    from taskpack.launch.explain_text import explanation_json, explanation_text

    found = explain(args.logs)
    print(json.dumps(explanation_json(found)) if args.json else explanation_text(found))
    return 0 if found.findings else 1
