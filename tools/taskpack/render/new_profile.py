"""A profile for a model that has none yet."""

from __future__ import annotations

from pathlib import Path

from taskpack.errors import ProfileError
from taskpack.profile import Profile, parse_profile
from taskpack.profile.from_hf import (
    NPUS_PER_NODE,
    choose_layout,
    generation_layers,
    read_architecture,
    read_family,
)
from taskpack.profile.releases import releases_of
from taskpack.render.engine import environment

# micro batches per step that keep the pipeline's idle share below a tenth
_ACCUMULATION_PER_STAGE = 12


def write_profile(
    folder: Path, model: str, tasks: Path, *, nodes: int | None = None, tp: int | None = None
) -> Profile:
    """Write `tasks/<model>/profile.yaml` for the model in a Hugging Face folder.

    Args:
        folder: Holds config.json; only that is read.
        model: Name of the new task.
        tasks: The `tasks/` folder.
        nodes: Number of nodes of 8 NPUs; None takes the fewest that fit.
        tp: Tensor parallel size; None chooses it.

    Returns:
        The profile that was written.

    Raises:
        ProfileError: The task exists, the model is of another family, or nothing fits.
    """
    target = tasks / model / "profile.yaml"
    if target.exists():
        raise ProfileError(
            f"the task {model!r} exists",
            where=str(target),
            why="a profile is written by hand and never replaced",
            fix="choose another --name, or remove the folder first",
        )
    text = _profile_text(folder, model, nodes=nodes, tp=tp)
    profile = parse_profile(text, str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return profile


def _profile_text(folder: Path, model: str, *, nodes: int | None, tp: int | None) -> str:
    family, shape = read_family(folder), read_architecture(folder)
    layout = choose_layout(shape, nodes=nodes, tp=tp)
    title = folder.resolve().name
    stages, answering = len(layout.text_layers), generation_layers(shape)
    return (
        environment()
        .get_template("profile.yaml.j2")
        .render(
            title=title,
            model=model,
            family=family,
            release=releases_of(family.name)[-1],
            repo=f"Qwen/{title}",
            hf_dir=str(folder),
            text=shape.text,
            vision=shape.vision,
            tp=layout.tp,
            pp=stages,
            needed=layout.tp * stages,
            text_layers=list(layout.text_layers),
            vision_layers=list(layout.vision_layers),
            generate_text_layers=list(answering),
            generate_vision_layers=[shape.vision.layers, *[0] * (len(answering) - 1)],
            accumulation=_ACCUMULATION_PER_STAGE * stages,
            nodes=layout.nodes,
            npus_per_node=NPUS_PER_NODE,
        )
    )
