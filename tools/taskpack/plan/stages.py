"""What each stage of the pipeline holds."""

from __future__ import annotations

from dataclasses import dataclass

from taskpack.profile import Profile
from taskpack.profile.parameters import Part, Size, parts


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, or a virtual stage: its layers, and the parts at the ends of the model."""

    stage: int
    virtual_stage: int
    vision_layers: int
    text_layers: int
    first_vision_layer: int
    """Number of its first vision layer in the model, from 0."""

    first_text_layer: int
    """Number of its first text layer in the model, from 0."""

    patches: bool
    """True where vision starts."""

    projector: bool
    """True where vision ends."""

    embedding: bool
    """True where text starts."""

    head: bool
    """True where text ends: the final norm and the output head."""

    size: Size
    """Parameters here, the copy of a tied embedding included."""

    trained: Size
    """Parameters that train here."""


def stages(profile: Profile) -> list[Stage]:
    """List the stages in layer order."""
    made = parts(profile, profile.tuning.mode)
    text, vision = profile.parallel.text, profile.parallel.vision
    reading = [count for _, _, count in text.counts()]
    seeing = [count for _, _, count in vision.counts()]
    text_ends, vision_ends = _ends(reading), _ends(seeing)
    found = []
    for place, (pp_rank, vpp_rank, layers) in enumerate(text.counts()):
        embedding, head = (place == end for end in text_ends)
        patches, projector = (place == end for end in vision_ends)
        tied = profile.architecture.text.tied
        held = [
            (made.patches, int(patches)),
            (made.vision_layer, seeing[place]),
            (made.projector, int(projector)),
            (made.embedding, int(embedding)),
            (made.text_layer, layers),
            (made.final_norm, int(head)),
            # a tied head is the embedding where both live, and a copy of it elsewhere
            (made.head, int(head and not (tied and embedding))),
        ]
        size, trained = _sum(held)
        found.append(
            Stage(
                stage=pp_rank,
                virtual_stage=vpp_rank,
                vision_layers=seeing[place],
                text_layers=layers,
                first_vision_layer=vision.starts()[place],
                first_text_layer=text.starts()[place],
                patches=patches,
                projector=projector,
                embedding=embedding,
                head=head,
                size=size,
                trained=trained,
            )
        )
    return found


def per_rank(profile: Profile) -> list[list[Stage]]:
    """Group the stages by the pipeline rank that holds them."""
    listed = stages(profile)
    return [[one for one in listed if one.stage == rank] for rank in range(profile.parallel.pp)]


def _ends(layers: list[int]) -> tuple[int, int]:
    """Find the first and the last place that holds a layer."""
    held = [place for place, count in enumerate(layers) if count]
    return held[0], held[-1]


def _sum(held: list[tuple[Part, int]]) -> tuple[Size, Size]:
    size, trained = Size(), Size()
    for part, count in held:
        size += part.size * count
        trained += part.trained * count
    return size, trained
