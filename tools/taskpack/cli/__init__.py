"""The `taskpack` command: parse, call one function, turn errors into exit codes.

Each group of commands registers itself from a sibling module; none of them imports numpy, torch
or transformers before the command that needs it runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from taskpack import __version__
from taskpack.cli import _data, _doctor, _lora, _mm_convert, _plan, _rehearse, _render, _weights
from taskpack.cli._parser import Parser
from taskpack.errors import HostError, TaskpackError


class _Terminated(BaseException):
    """SIGTERM arrived; unwinding lets every open output reach a resumable state."""


def _on_sigterm(_signum: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of every command."""
    parser = Parser(
        prog="taskpack",
        description="One profile per model, from HF weights to a tuned model on Ascend NPUs.",
    )
    parser.add_argument("--version", action="version", version=f"taskpack {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (_render, _plan, _weights, _lora, _mm_convert, _data, _doctor, _rehearse):
        group.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Returns:
        0 ok, 1 a check found problems, 2 usage or profile, 3 checkpoint, 4 dataset, 5 host,
        130 and 143 after SIGINT and SIGTERM.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _on_sigterm)
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    try:
        args = _parse(build_parser(), words)
        result: int = args.run(args)
        return result
    except TaskpackError as error:
        return _report(error, as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _report(_host_error(error), as_json=as_json)
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 143


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    args, unknown = parser.parse_known_args(words)
    if unknown and not getattr(args, "takes_unknown", False):
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.unknown = unknown
    return args


def _report(error: TaskpackError, *, as_json: bool) -> int:
    print(error, file=sys.stderr)
    if as_json:
        print(json.dumps({"errors": error.to_json(), "exit_code": error.exit_code}))
    return error.exit_code


def _host_error(error: OSError) -> HostError:
    where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
    return HostError(
        f"the system refused: {error.strerror or error}",
        where=where or "this host",
        why="a file or folder could not be read or written",
        fix="check the path, its permissions and the free space, then run the same command again",
    )
