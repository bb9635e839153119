"""What job descriptions of Kubernetes say about the nodes of a profile."""

from __future__ import annotations

from dataclasses import dataclass

from taskpack.profile import Profile
from taskpack.profile.image import image_name


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of an AscendJob that are alike."""

    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Words of a job description that the profile does not hold as such."""

    job: str
    """Name of the job; Kubernetes takes no dots in it."""
    accelerator: str
    """The node label of the chip and of the NPUs that a node has."""
    image: str
    """What docker/build.sh calls the image of this task."""
    roles: tuple[Role, ...]
    """The first pod is the master; a job of one node has no worker."""


def describe_cluster(profile: Profile) -> Cluster:
    """Word the nodes, the chip and the image of a profile."""
    platform = profile.platform
    workers = platform.nodes - 1
    roles = (Role("Master", 1), *([Role("Worker", workers)] if workers else []))
    chip = "a3" if platform.device == "A3" else "910b"
    return Cluster(
        job=profile.model.replace(".", "-").replace("_", "-").lower(),
        accelerator=_accelerator(platform.device, platform.npus_per_node),
        image=image_name(profile.release, chip, profile.family),
        roles=roles,
    )


def _accelerator(device: str, npus: int) -> str:
    if device == "A3":
        return "module-a3-16"
    return "module-910b-8" if npus <= 8 else "module-910b-16"
