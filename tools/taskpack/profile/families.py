"""What the models of a family share, as MindSpeed-MM names it."""

from __future__ import annotations

from functools import cache

from taskpack.paths import PACKAGE_DIR
from taskpack.profile._section import Section, freeze
from taskpack.profile.yaml_loader import read_yaml


class Family(Section):
    """One family of models."""

    name: str
    """Name of the family, as config.json has it in model_type."""

    title: str
    """Name of the family as published."""

    script: str
    """Part of the launcher's name: `finetune_<script>.sh`."""

    model_id: str
    """Name of the whole model in model.json."""

    text_model_id: str
    """Name of the language model in model.json."""

    text_seq_length: bool
    """True when its model.json repeats the sequence length in the language model."""

    vision_norm: str
    """Normalization of the vision encoder and of the projector."""

    vision_activation: str
    """Activation function of the vision encoder's feed-forward part."""

    windowed_vision: bool
    """True when the vision encoder attends in windows and its feed-forward part is gated."""

    temperature: float
    """Temperature at which it answers; its examples take the likeliest token anyway."""

    repetition_penalty: float
    """Factor against tokens that an answer holds already, as its examples set it."""

    canonical: bool
    """True when MindSpeed-MM has the family with q, k, v, gate and up as separate modules."""

    @property
    def launcher(self) -> str:
        """Name of the script that fine-tunes."""
        return f"finetune_{self.script}.sh"


@cache
def families() -> dict[str, Family]:
    """Give every family by its name."""
    path = PACKAGE_DIR / "profile" / "families.yaml"
    document = read_yaml(path.read_text(encoding="utf-8"), path.name)
    return {
        name: Family.model_validate(freeze({"name": name, **facts}))
        for name, facts in document.data.items()
    }
