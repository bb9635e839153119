"""A stand-in for torchrun: checks the size of the cluster, then starts what this host carries.

One run stands for all nodes: it takes the arguments of node 0, and its processes share the batches
of the whole cluster.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from taskpack.errors import HostError, ProfileError, TaskpackError
from taskpack.rehearse.engine.main import CLUSTER_SIZE

PROCESSES = "TASKPACK_REHEARSE_PROCESSES"
"""Environment: engine processes to start; by default one per processor, two at most."""
PARALLEL_FLAGS = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
)
POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Start the engine processes, and end them all when one fails."""
    args = _parser().parse_args(argv)
    try:
        _check(args)
        count = _process_count()
    except TaskpackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    workers: list[subprocess.Popen[bytes]] = []

    def stop(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    try:
        environment = _environment(args, count)
        for rank in range(count):
            command = [sys.executable, args.script, *args.arguments]
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            workers.append(subprocess.Popen(command, env={**environment, **ranks}))
        return _wait(workers)
    except KeyboardInterrupt:
        return 130
    finally:
        _end(workers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrun", description="Stand-in of a rehearsal.")
    parser.add_argument("--nproc_per_node", "--nproc-per-node", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node_rank", "--node-rank", type=int, default=0)
    parser.add_argument("--master_addr", "--master-addr", default="localhost")
    parser.add_argument("--master_port", "--master-port", type=int, default=29500)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _check(args: argparse.Namespace) -> None:
    cluster, copy = args.nproc_per_node * args.nnodes, _copy_size(args.arguments)
    if cluster % copy:
        raise ProfileError(
            f"{args.nnodes} x {args.nproc_per_node} processes cannot hold copies of {copy}",
            where="command line of torchrun",
            why="tensor x pipeline x context parallel size must divide the number of processes",
            fix=f"start a multiple of {copy} processes",
        )
    if args.node_rank != 0:
        raise HostError(
            f"node {args.node_rank} was started in a rehearsal",
            where="--node_rank",
            why="one stand-in runs for all nodes, on behalf of node 0",
            fix="start the script once, with NODE_RANK=0",
        )


def _process_count() -> int:
    text = os.environ.get(PROCESSES, str(min(2, os.cpu_count() or 1)))
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise ProfileError(
        f"{PROCESSES} is {text!r}",
        where="environment",
        why="it counts the engine processes that share the batches",
        fix="set a number from 1, or unset it",
    )


def _copy_size(arguments: Sequence[str]) -> int:
    size = 1
    for flag, value in itertools.pairwise(arguments):
        if flag in PARALLEL_FLAGS and value.isdigit():
            size *= max(1, int(value))
    return size


def _environment(args: argparse.Namespace, count: int) -> dict[str, str]:
    """Name the meeting point: a free port here, since the master's address may be elsewhere."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        **os.environ,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        CLUSTER_SIZE: str(args.nproc_per_node * args.nnodes),
    }


def _wait(workers: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all, or for the first that fails; the failure that ended the run is returned."""
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [code for code in codes if code]
        if failed:
            code = failed[0]
            return code if code > 0 else 128 - code
        if None not in codes:
            return 0
        time.sleep(POLL_SECONDS)


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    sys.exit(main())
