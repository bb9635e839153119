"""Where weights and data lie, and on what the task runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from taskpack.profile._section import EnvironmentValue, NonNegative, Positive, Section, Text


class HuggingFace(Section):
    """The weights as published."""

    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    """Owner and name, as the hubs spell them."""

    dir: Text
    """Folder of the weights, the tokenizer and the processor."""

    online: bool = False
    """True trains from these weights without a conversion, where the release can."""


class Paths(Section):
    """Folders of checkpoints, below the MindSpeed-MM checkout unless absolute."""

    mm: Text
    """Converted base weights: what training loads."""

    save: Text = "save_dir"
    """Checkpoints of a run."""

    merged: Text
    """Base weights with the adapter merged in, still in MindSpeed-MM's form."""

    export: Text
    """The tuned model in Hugging Face form."""


class Data(Section):
    """Training rows and how they become tokens."""

    files: tuple[Text, ...]
    """Files of rows in MindSpeed-MM's form, read one after the other."""

    dir: Text = "./data"
    """Joined in front of every media path."""

    cache_dir: Text = "./data/cache_dir"
    """Tokenised rows. Per node, never shared between nodes."""

    media: Literal["images", "videos", "none"] = "images"
    """What rows hold beside text. One kind per run: the trainer cannot mix them in a batch."""

    max_samples: Positive | None = None
    """Rows to read; null reads all."""

    image_max_pixels: Positive = 262144
    """Larger images are scaled down to this area."""

    image_min_pixels: NonNegative = 0
    """Smaller images are scaled up to this area."""

    video_max_pixels: Positive = 16384
    """Larger frames are scaled down to this area."""

    video_min_pixels: NonNegative = 0
    """Smaller frames are scaled up to this area."""

    video_fps: Annotated[float, Field(gt=0)] = 2.0
    """Frames taken from a second of video."""

    video_max_frames: Positive = 64
    """Frames taken from one video at most."""

    workers: Positive = 16
    """Processes that tokenise before training."""

    loader_workers: NonNegative = 8
    """Processes per NPU that load batches during training."""

    system_tag: Text | None = None
    """Role name of system messages; with null, rows that hold one are dropped by the trainer."""

    @property
    def joined_files(self) -> str:
        """The files as the trainer wants them: joined by commas, which it does not trim."""
        return ",".join(self.files)


class Platform(Section):
    """Nodes and their settings."""

    nodes: Positive
    """Nodes of the cluster."""

    npus_per_node: Annotated[int, Field(gt=0, le=16)] = 8
    """NPUs of a node: 8 on most A2 nodes, 16 (dies) on A3."""

    device: Literal["A2", "A3"] = "A2"
    """Generation of the NPU."""

    master_port: Annotated[int, Field(ge=1024, le=65535)] = 29501
    """TCP port on the first node where the ranks meet."""

    ascend_prefix: Text = "/usr/local/Ascend"
    """Folder that holds CANN and ATB."""

    timeout_minutes: Positive = 20
    """Longest wait of one rank for another, in minutes; saving a large file counts."""

    env: dict[str, EnvironmentValue] = Field(default_factory=dict)
    """Environment variables exported before torchrun."""
