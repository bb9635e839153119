"""What is looked at, and what for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from taskpack.launch.host import Host
from taskpack.profile import Profile
from taskpack.profile.releases import Release, load_release

PREFIXES = ("/usr/local/Ascend", "/usr/local/npu")
"""Where drivers and CANN are installed; the second is that of overseas builds."""


@dataclass(frozen=True, slots=True)
class Case:
    """A machine, the task that shall run on it, and the other nodes."""

    host: Host = field(default_factory=Host)

    profile: Profile | None = None
    """None looks at the machine alone."""

    task: Path | None = None
    """Folder of the task."""

    hosts: tuple[str, ...] = ()
    """Nodes of the run in rank order; empty when they were not named."""

    @property
    def checkout(self) -> Path | None:
        """The MindSpeed-MM checkout: launchers start in the folder that contains tasks/."""
        return None if self.task is None else self.task.resolve().parent.parent

    @property
    def release(self) -> Release | None:
        """The release of MindSpeed-MM that the task is made for."""
        if self.profile is None:
            return None
        return load_release(self.profile.release, where=f"profile of {self.profile.model}")

    @property
    def nodes(self) -> int:
        """Nodes of the run."""
        given = self._number("NNODES")
        return len(self.hosts) or given or (self.profile.platform.nodes if self.profile else 1)

    @property
    def npus(self) -> int | None:
        """NPUs that the run takes of this node; None when nothing says."""
        given = self._number("NPUS_PER_NODE")
        return given or (self.profile.platform.npus_per_node if self.profile else None)

    @property
    def save_path(self) -> Path | None:
        """Folder of checkpoints."""
        if self.profile is None or self.checkout is None:
            return None
        return self.checkout / (self.host.env.get("SAVE_PATH") or self.profile.paths.save)

    @property
    def load_path(self) -> Path | None:
        """Folder of the converted weights."""
        if self.profile is None or self.checkout is None:
            return None
        return self.checkout / (self.host.env.get("LOAD_PATH") or self.profile.paths.mm)

    def ascend_folders(self, *names: str) -> list[str]:
        """List folders of CANN or the driver, the task's own prefix first."""
        first = self.host.env.get("ASCEND_PREFIX") or (
            self.profile.platform.ascend_prefix if self.profile else PREFIXES[0]
        )
        prefixes = dict.fromkeys((first, *PREFIXES))
        return [f"{prefix}/{name}" for prefix in prefixes for name in names]

    def _number(self, name: str) -> int | None:
        text = self.host.env.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None
