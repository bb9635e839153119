"""The whole profile, and the values that follow from it."""

from __future__ import annotations

from math import gcd
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from taskpack.profile._section import Section
from taskpack.profile.architecture import Architecture
from taskpack.profile.extra import Extra
from taskpack.profile.families import Family, families
from taskpack.profile.generate import Generate
from taskpack.profile.layout import Parallel
from taskpack.profile.resources import Data, HuggingFace, Paths, Platform
from taskpack.profile.training import Batch, Resume, Train, Tuning
from taskpack.profile.yaml_loader import StrictDumper


class Profile(Section):
    """Everything a task needs to know, each number once."""

    model: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """Name of the task and of its folder in tasks/."""

    family: Literal["qwen2_5_vl", "qwen2_vl"]
    """Models that share one mapping of weights."""

    release: str
    """MindSpeed-MM release that runs the task."""

    hf: HuggingFace
    """The weights as published."""

    architecture: Architecture
    """Shape of the model."""

    parallel: Parallel
    """How the model lies on the NPUs."""

    batch: Batch
    """Samples per step."""

    train: Train
    """The run."""

    tuning: Tuning = Tuning()
    """Full or LoRA."""

    data: Data
    """Training rows."""

    resume: Resume = Resume()
    """Where training goes on from."""

    paths: Paths
    """Folders of checkpoints."""

    platform: Platform
    """Nodes and their settings."""

    generate: Generate = Generate()
    """Inference and evaluation."""

    extra: Extra = Extra()
    """What no other key says: passed on as it is, when the release knows it."""

    @property
    def family_facts(self) -> Family:
        """What the models of the family share."""
        return families()[self.family]

    @property
    def launcher(self) -> str:
        """Name of the script that fine-tunes: `finetune_qwen2_5_vl.sh`."""
        return self.family_facts.launcher

    @property
    def title(self) -> str:
        """Name of the model as published: `Qwen2.5-VL-32B-Instruct`."""
        return self.hf.repo.rpartition("/")[2]

    @property
    def generating(self) -> Profile:
        """The same model as it lies on NPUs that answer: its own layout, nothing that trains."""
        text, vision = self.generate.text_layers, self.generate.vision_layers
        shape = self.architecture
        layout = Parallel(
            tp=1,
            text_layers=text or (shape.text.layers,),
            vision_layers=vision or (shape.vision.layers,),
        )
        still = {"recompute": "none", "freeze": ("vision", "projector")}
        return self.model_copy(
            update={
                "parallel": layout,
                "train": self.train.model_copy(update=still),
                "data": self.data.model_copy(update={"media": "images"}),
                "hf": self.hf.model_copy(update={"online": False}),
                "extra": Extra(),
            }
        )

    @property
    def generate_dir(self) -> str:
        """Folder of the weights that answer."""
        return self.generate.dir or f"{self.paths.mm}-generate"

    @property
    def model_parallel_size(self) -> int:
        """NPUs that hold one copy of the model."""
        return self.parallel.tp * self.parallel.pp * self.parallel.cp

    @property
    def world_size(self) -> int:
        """NPUs of the cluster."""
        return self.platform.nodes * self.platform.npus_per_node

    @property
    def least_nodes(self) -> int:
        """Smallest number of such nodes that holds whole copies of the model."""
        size = self.model_parallel_size
        return size // gcd(size, self.platform.npus_per_node)

    @property
    def dp(self) -> int:
        """Data parallel size: copies of the model."""
        return self.world_size // self.model_parallel_size

    @property
    def accumulation(self) -> int:
        """Micro batches per step."""
        if self.batch.accumulation is not None:
            return self.batch.accumulation
        return (self.batch.global_ or 0) // (self.batch.micro * self.dp)

    @property
    def global_batch(self) -> int:
        """Samples per step."""
        return self.batch.micro * self.accumulation * self.dp

    @property
    def frozen_stages(self) -> tuple[int, ...]:
        """Stages without a parameter that trains: only frozen vision layers live there."""
        text, vision = self.parallel.text, self.parallel.vision
        trained = {stage for stage, _, layers in text.counts() if layers}
        seeing = [stage for stage, _, layers in vision.counts() if layers]
        if "vision" not in self.train.freeze:
            trained.update(seeing)
        if "projector" not in self.train.freeze:
            trained.update(seeing[-1:])
        return tuple(stage for stage in range(self.parallel.pp) if stage not in trained)

    @property
    def needs_dummy_optimizer(self) -> bool:
        """True when some stage has nothing to train; the trainer then needs a stand-in."""
        return bool(self.frozen_stages)


def to_yaml(profile: Profile) -> str:
    """Write a profile as YAML that loads back to an equal one."""
    data: dict[str, Any] = profile.model_dump(mode="json", by_alias=True)
    text: str = yaml.dump(
        data, Dumper=StrictDumper, sort_keys=False, allow_unicode=True, width=100,
        default_flow_style=None,
    )  # fmt: skip
    return text
