"""Workers of a Ray cluster.

The process that was started reads and writes the files; the cluster parses, judges and looks at
media, which lie in a folder that all of its hosts share.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from taskpack.errors import HostError

KNOCK_SECONDS = 10


class RayPool:
    """Tasks of a Ray cluster: of the one that RAY_ADDRESS names, else of one started here.

    Args:
        work: What is done with each item; the hosts have taskpack installed.
        size: Tasks at a time; None is one per processor of the cluster.

    Raises:
        HostError: Ray is not installed, or its cluster cannot be reached.
    """

    def __init__(self, work: Callable[[Any], Any], size: int | None) -> None:
        self._ray = _load_ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            self._start(size)
        self.size = size or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._task = self._ray.remote(work)

    def _start(self, size: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = os.environ.get("RAY_ADDRESS", "")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address:
                _knock(address)
                self._ray.init(**options)
            else:
                self._ray.init(num_cpus=size, include_dashboard=False, **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise HostError(
                f"Ray does not start: {str(error).splitlines()[0]}",
                where=f"RAY_ADDRESS={address}",
                why="--engine ray runs on the cluster of that address, or on one of its own",
                fix="correct or unset RAY_ADDRESS, or leave out --engine",
            ) from None

    def submit(self, item: Any) -> _RayHandle:
        """Start the work on an item."""
        return _RayHandle(self._ray, self._task.remote(item))

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        if self._started:
            self._ray.shutdown()


class _RayHandle:
    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray = ray
        self._reference = reference

    def result(self) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise HostError(
                f"a task of the Ray cluster was lost: {type(error).__name__}",
                where=os.environ.get("RAY_ADDRESS", "the cluster on this host"),
                why="its host went away, or ran out of memory",
                fix="look at ray status, and run the same command with --resume",
            ) from None

    def cancel(self) -> object:
        return self._ray.cancel(self._reference)


def _knock(address: str) -> None:
    """Try the port of a cluster: Ray itself would try for minutes.

    Raises:
        OSError: Nobody answers.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def _load_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError:
        raise HostError(
            "this Python has no Ray",
            where=sys.executable,
            why="--engine ray needs it",
            fix="pip install 'taskpack[data,ray]'",
        ) from None
    return ray
