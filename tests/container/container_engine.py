"""A container engine for tests where no docker daemon runs: buildah builds, podman runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).parents[2]
PROGRAMS = ("buildah", "debootstrap", "podman", "runc")

# Storage of our own, so that nothing is left behind and nothing else is touched.
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{root}/storage"
runroot = "{root}/run"
"""
# No systemd, no network set-up, limits that a sandbox allows.
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
# What docker/build.sh and docker/run.sh call. Limits cannot be raised here, and buildah takes its
# context from a folder; without the docker format it would drop SHELL and HEALTHCHECK.
SHIM = """\
#!/usr/bin/env bash
set -euo pipefail
words=()
while (($# > 0)); do
  case $1 in
    --ulimit) shift ;;
    *) words+=("$1") ;;
  esac
  shift
done
if [[ ${words[0]} != build ]]; then
  exec podman "${words[@]}"
fi
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
tar --extract --directory "$context"
cd "$context"
buildah bud --pull-never --isolation chroot --format docker "${words[@]:1:${#words[@]}-2}" .
"""


@dataclass
class Engine:
    """Storage, configuration and a stand-in for docker below one folder."""

    root: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        shims = self.root / "bin"
        shims.mkdir(parents=True)
        (shims / "docker").write_text(SHIM, encoding="utf-8")
        (shims / "docker").chmod(0o755)
        (self.root / "storage.conf").write_text(STORAGE.format(root=self.root), encoding="utf-8")
        (self.root / "containers.conf").write_text(CONTAINERS, encoding="utf-8")
        self.environment = {
            "PATH": f"{shims}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.root),
            "CONTAINERS_STORAGE_CONF": str(self.root / "storage.conf"),
            "CONTAINERS_CONF": str(self.root / "containers.conf"),
            "DISABLE_HC_SYSTEMD": "true",
            "PYTHON": str(REPO / ".venv" / "bin" / "python"),
        }

    def run(
        self, *words: str | Path, timeout: int = 600, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with this engine; the caller looks at its exit code."""
        return subprocess.run(
            [str(word) for word in words],
            env={**self.environment, **variables},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def need(self, *words: str | Path, timeout: int = 600) -> str:
        """Run a program that must succeed; give what it printed."""
        done = self.run(*words, timeout=timeout)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def close(self) -> None:
        """Remove containers, images and storage."""
        for words in (("podman", "rm", "--all", "--force"), ("buildah", "rm", "--all")):
            self.run(*words)
        self.run("buildah", "rmi", "--all", "--force")
        self.run("umount", "--recursive", self.root / "storage")
        shutil.rmtree(self.root, ignore_errors=True)


def missing_programs() -> list[str]:
    """Name what the tests need and this host lacks."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return missing if os.geteuid() == 0 else [*missing, "root"]
