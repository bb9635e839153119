"""Versions of the software around a run, read from files and package records, never by import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from taskpack.launch.host import Host

_VERSION = re.compile(r"[vV]?(\d+(?:\.\d+)*)(?:[.-]?(rc|beta|alpha|t)\.?(\d+))?", re.IGNORECASE)
_STAGES = {"t": 0, "alpha": 0, "beta": 1, "rc": 2}
_FINAL = 3
_PAIR = re.compile(r"\s*([\w.-]+)\s*[=:]\s*(.*?)\s*")
_CORE = re.compile(r"^(MAJOR|MINOR|PATCH)\s*=\s*(\d+)", re.MULTILINE)

CANN_FILES = (
    "ascend_toolkit_install.info",
    "*-linux/ascend_toolkit_install.info",
    "*/*-linux/ascend_toolkit_install.info",
    "version.cfg",
    "version.info",
    "runtime/version.info",
    "compiler/version.info",
)
"""Where CANN says what it is, below its home; the spelling changed with its releases."""

_CANN_KEYS = ("version", "toolkit_running_version", "runtime_running_version")
_DRIVER_KEYS = ("package_version", "version")


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package as pip recorded it."""

    version: str

    commit: str | None
    """Of the checkout that it was installed from; None when it was not, or not readable."""


def version_key(text: str) -> tuple[int, int, int, int, int] | None:
    """Order versions such as 8.0.T6, 8.0.RC3, 8.0.0, 9.1.0-beta.1; None where there is none."""
    match = _VERSION.match(text.strip())
    if match is None:
        return None
    numbers = [int(number) for number in match[1].split(".")]
    first, second, third = (*numbers, 0, 0)[:3]
    stage = _STAGES[match[2].lower()] if match[2] else _FINAL
    return first, second, third, stage, int(match[3] or 0)


def same_version(one: str, other: str) -> bool:
    """Tell whether two spellings name one version."""
    key = version_key(one)
    return key is not None and key == version_key(other)


def parse_pairs(text: str) -> dict[str, str]:
    """Read `key=value` or `key: value` lines; keys in lower case, quotes taken off."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if not line.lstrip().startswith("#") and (match := _PAIR.fullmatch(line)):
            pairs.setdefault(match[1].lower(), match[2].strip("\"'"))
    return pairs


def parse_driver(text: str) -> str | None:
    """Read version.info of a driver; its Version may be that of a part, package_version is not."""
    return _first(parse_pairs(text), _DRIVER_KEYS)


def parse_driver_folder(text: str) -> str | None:
    """Read from /etc/ascend_install.info where the driver was installed to."""
    return parse_pairs(text).get("driver_install_path_param")


def parse_cann(text: str) -> str | None:
    """Read a file of CANN_FILES; `[7.1:8.0.RC1]` holds the version behind the colon."""
    value = _first(parse_pairs(text), _CANN_KEYS)
    if value is None:
        return None
    found = re.findall(r"\[(?:[^:\]]*:)?([^\]]+)\]", value) or [value]
    return found[0] if version_key(found[0]) else None


def parse_core(text: str) -> str | None:
    """Read megatron/core/package_info.py, which is copied, not installed."""
    numbers = dict(_CORE.findall(text))
    if set(numbers) != {"MAJOR", "MINOR", "PATCH"}:
        return None
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))


def driver_version(host: Host, folders: list[str]) -> tuple[str, Path] | None:
    """Find the installed driver and where it says so."""
    recorded = parse_driver_folder(host.read("/etc/ascend_install.info") or "")
    places = [f"{recorded}/driver"] if recorded else []
    for folder in (*places, *folders):
        path = host.path(f"{folder}/version.info")
        if version := parse_driver(host.read(path) or ""):
            return version, path
    return None


def cann_version(host: Host, homes: list[str]) -> tuple[str, Path] | None:
    """Find the CANN of the first home that has one, and where it says so."""
    for home in homes:
        folder = host.path(home)
        for pattern in CANN_FILES:
            for path in sorted(folder.glob(pattern)):
                if version := parse_cann(host.read(path) or ""):
                    return version, path
    return None


def package(*names: str) -> Package | None:
    """Find a Python package under one of its names, in the environment of this process."""
    for name in names:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        record = found.read_text("direct_url.json") or ""
        url = re.search(r'"url"\s*:\s*"(file:[^"]+)"', record)
        folder = Path(unquote(urlparse(url[1]).path)) if url else None
        return Package(found.version, git_commit(folder) if folder else None)
    return None


def git_commit(checkout: Path) -> str | None:
    """Read which commit is checked out, without git."""
    git = checkout / ".git"
    try:
        if git.is_file():  # a worktree or a submodule
            git = checkout / git.read_text(encoding="utf-8").partition(":")[2].strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        packed = (git / "packed-refs").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^([0-9a-f]{{40}}) {re.escape(name)}$", packed, re.MULTILINE)
    return found[1] if found else None


def _first(pairs: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((pairs[key] for key in keys if pairs.get(key)), None)
