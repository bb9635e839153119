"""The narrow twin: a profile that differs from the real one in widths, steps and paths alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from taskpack.errors import ProfileError, raise_collected
from taskpack.profile import Profile, profile_from_dict

HEAD_DIM = 8
MROPE_SECTION = [1, 1, 2]
"""Half of HEAD_DIM, shared by time, height and width as in the published model."""
MICRO_BATCHES = 48
LEAST_STEPS = 6
BATCH = 4
IMAGE_PIXELS = 112 * 112
LEARNING_RATES = {"lora": 3e-3, "full": 1e-3}
"""High enough for random weights of this width to show learning within a dozen steps."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asks of a rehearsal."""

    tuning: str
    """`lora` or `full`."""
    steps: int | None = None
    """Optimizer steps; by default about two passes over the sample rows."""
    seq_length: int = 256
    """Tokens."""


def narrow(profile: Profile, wishes: Wishes) -> Profile:
    """Derive the twin.

    It keeps family, release, layers, TP and PP lists, heads, query groups, vocabulary, token ids,
    LoRA settings, freezing and flags; it has the least number of nodes.

    Raises:
        ProfileError: The stand-in for the trainer cannot run such a task.
    """
    raise_collected(list(_refusals(profile)))
    data: dict[str, Any] = profile.model_dump(mode="json", by_alias=True)
    _narrow_architecture(data["architecture"], tp=profile.parallel.tp)
    title = profile.title
    data["hf"]["dir"] = f"ckpt/hf_path/{title}"
    data["paths"].update(
        mm=f"ckpt/mm_path/{title}",
        save="save_dir",
        merged=f"ckpt/mm_merged/{title}",
        export=f"ckpt/mm_to_hf/{title}",
    )
    data["data"].update(
        files=["./data/rehearsal.json"],
        dir="./data",
        cache_dir="./data/cache_dir",
        max_samples=None,
        image_max_pixels=min(IMAGE_PIXELS, profile.data.image_max_pixels),
        image_min_pixels=0,
    )
    data["resume"].update(iteration=None, optimizer=False, rng=False)
    data["platform"]["nodes"] = profile.least_nodes
    _shorten(data, profile, wishes)
    return profile_from_dict(data, where=f"narrow twin of {profile.model}")


def _refusals(profile: Profile) -> Iterator[ProfileError]:
    """Name what the stand-in for the trainer does not do."""
    beyond = {
        "family": (profile.family != "qwen2_5_vl", f"the family {profile.family}"),
        "parallel.fsdp2": (profile.parallel.fsdp2, "FSDP2"),
        "hf.online": (profile.hf.online, "weights without a conversion"),
        "data.media": (profile.data.media != "images", f"media {profile.data.media}"),
    }
    for key, (asked, what) in beyond.items():
        if asked:
            yield ProfileError(
                f"{what} cannot be rehearsed yet",
                where=f"tasks/{profile.model}/profile.yaml ({key})",
                why="a rehearsal converts, trains and exports Qwen2.5-VL with pictures",
                fix="rehearse a task without it; `taskpack plan` and dry runs still check this one",
            )


def _narrow_architecture(architecture: dict[str, Any], *, tp: int) -> None:
    text, vision = architecture["text"], architecture["vision"]
    text["head_dim"] = HEAD_DIM
    text["mrope_section"] = MROPE_SECTION
    text["hidden_size"] = text["attention_heads"] * HEAD_DIM
    vision["hidden_size"] = vision["attention_heads"] * HEAD_DIM
    for module in (text, vision):
        # No plain multiple of the hidden size, so that exchanged axes cannot go unnoticed.
        module["ffn_hidden_size"] = 2 * module["hidden_size"] + HEAD_DIM * tp


def _shorten(data: dict[str, Any], profile: Profile, wishes: Wishes) -> None:
    copies = profile.least_nodes * profile.platform.npus_per_node // profile.model_parallel_size
    micro = min(profile.batch.micro, 2)
    accumulation = max(1, BATCH // (micro * copies))
    steps = wishes.steps or max(LEAST_STEPS, MICRO_BATCHES // (accumulation * copies))
    data["batch"] = {"micro": micro, "accumulation": accumulation}
    data["train"].update(
        iters=steps,
        lr=LEARNING_RATES[wishes.tuning],
        min_lr=0.0,
        seq_length=wishes.seq_length,
        save_interval=max(1, steps // 2),
        log_interval=1,
    )
