"""The pipeline and the memory of its stages as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from taskpack.errors import HostError
from taskpack.plan.memory import GIB, Memory
from taskpack.plan.report import Plan
from taskpack.plan.stages import Stage
from taskpack.plan.tables import billions
from taskpack.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

_PARTS = {
    "weights": "#3b6ea5",
    "gradients": "#7fb2e5",
    "optimizer": "#f0a04b",
    "activations": "#6aa84f",
    "logits": "#b6d7a8",
    "runtime": "#bdbdbd",
}
_BLOCKS = {"vision": "#8e7cc3", "text": "#34657f", "embedding or head": "#2a9d8f"}
_INK = "#333333"
_LEAST_LABELLED = 0.07
"""Share of the longest stage below which a block is too short for its name."""

Kind = Literal["png", "svg"]


def draw(plan: Plan, path: Path, kind: Kind, *, width: float = 10.0) -> None:
    """Draw a plan into a file.

    Args:
        plan: The plan.
        path: File to write.
        kind: What to write.
        width: Width of the picture in inches; it is as high as it has stages.

    Raises:
        HostError: matplotlib is not installed.
    """
    rc_context, figure = _figure(width, 2.4 + 0.4 * (len(plan.stages) + len(plan.memory)))
    above, below = figure.subplots(2, 1, height_ratios=[len(plan.stages), len(plan.memory) + 1])
    _draw_pipeline(above, plan)
    _draw_memory(below, plan)
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=7,
                  fontsize=8, frameon=False)  # fmt: skip
    figure.suptitle(_title(plan.profile), fontsize=11, color=_INK)
    # no time and no version, and ids that are not drawn: the same plan is the same file
    with rc_context({"svg.hashsalt": "taskpack", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, dpi=150, metadata=_NO_METADATA[kind])


_NO_METADATA: dict[Kind, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


def _figure(width: float, height: float) -> tuple[Callable[..., Any], Figure]:
    """Make an empty figure, and give matplotlib's way of setting things for a while."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise HostError(
            "matplotlib is not installed",
            where="taskpack plan --png",
            why="it draws the picture",
            fix="pip install 'taskpack[plot]'",
        ) from None
    return rc_context, Figure(figsize=(width, height), layout="constrained")


def _title(profile: Profile) -> str:
    parallel = profile.parallel
    return (
        f"{profile.title}, {profile.tuning.mode}: TP {parallel.tp} x PP {parallel.pp} x CP "
        f"{parallel.cp} x DP {profile.dp} = {profile.world_size} NPUs"
    )


def _draw_pipeline(axes: Axes, plan: Plan) -> None:
    """Draw each stage as a row of blocks, as long as it has layers."""
    longest = max(sum(length for _, _, length in _blocks(stage)) for stage in plan.stages)
    for row, stage in enumerate(plan.stages):
        left, beside = 0.0, []
        for kind, name, length in _blocks(stage):
            axes.barh(row, length, left=left, height=0.66, color=_BLOCKS[kind], edgecolor="white")
            if name and length >= _LEAST_LABELLED * longest:
                axes.text(left + length / 2, row, name, ha="center", va="center", color="white",
                          fontsize=8)  # fmt: skip
            elif name:
                beside.append(name)
            left += length
        note = ", ".join([*beside, _parameters(stage)])
        axes.text(left, row, f"  {note}", va="center", fontsize=8, color=_INK)
    virtual = plan.profile.parallel.vpp > 1
    numbers = [f"{one.stage}.{one.virtual_stage}" if virtual else one.stage for one in plan.stages]
    _frame(axes, [f"stage {number}" for number in numbers])
    axes.set_xlim(0, 1.35 * longest)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.legend(handles=_keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8,
                frameon=False)  # fmt: skip


def _blocks(stage: Stage) -> list[tuple[str, str, float]]:
    """Give kind, name and length of the blocks of a stage; an end is as long as a layer."""
    end = "embedding or head"
    named = [
        ("vision", f"vision {stage.vision_layers}", float(stage.vision_layers)),
        (end, "", float(stage.embedding)),
        ("text", f"text {stage.text_layers}", float(stage.text_layers)),
        (end, "", float(stage.head)),
    ]
    return [block for block in named if block[2]]


def _parameters(stage: Stage) -> str:
    size, trained = stage.size.total, stage.trained.total
    if trained == size:
        return f"{billions(size)}, all trains"
    return f"{billions(size)}, {billions(trained) if trained else 'nothing'} trains"


def _keys() -> list[Patch]:
    from matplotlib.patches import Patch

    return [Patch(color=colour, label=kind) for kind, colour in _BLOCKS.items()]


def _draw_memory(axes: Axes, plan: Plan) -> None:
    """Draw what fills an NPU of each stage, the band of the estimate and the end of the NPU."""
    left = [0.0] * len(plan.memory)
    for part, colour in _PARTS.items():
        sizes = [getattr(one, part) / GIB for one in plan.memory]
        axes.barh(range(len(sizes)), sizes, left=left, height=0.66, color=colour, label=part)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.errorbar(
        left, range(len(left)), xerr=_band(plan.memory), fmt="none", ecolor=_INK, capsize=3, lw=1
    )
    hbm = plan.hbm / GIB
    axes.axvline(hbm, color="#c0392b", lw=1.5, label=f"NPU, {hbm:.0f} GiB")
    highest = max(one.high / GIB for one in plan.memory)
    for row, one in enumerate(plan.memory):
        axes.text(one.high / GIB, row, f"  {one.total / GIB:.1f}", va="center", fontsize=8,
                  color=_INK)  # fmt: skip
    _frame(axes, [f"stage {row}" for row in range(len(left))])
    axes.set_xlabel("GiB of one NPU (estimate, with its band)", fontsize=8)
    axes.set_xlim(0, 1.12 * max(hbm, highest))


def _band(found: Sequence[Memory]) -> list[list[float]]:
    return [
        [(one.total - one.low) / GIB for one in found],
        [(one.high - one.total) / GIB for one in found],
    ]


def _frame(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
