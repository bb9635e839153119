"""How the model lies on the NPUs: tensor, pipeline and context parallel."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from taskpack.parallel import PipelineSplit
from taskpack.profile._section import Positive, Section, thaw


def _layer_list(value: Any) -> Any:
    rows = value if _nested(value) else (value,)
    if not all(isinstance(row, tuple) and all(map(_is_count, row)) for row in rows):
        raise PydanticCustomError("layer_list", "a list of layers per stage, as in [4, 9]")
    try:
        PipelineSplit.parse(thaw(value))
    except ValueError:
        raise PydanticCustomError(
            "layer_list", "one list per virtual stage, all of one length"
        ) from None
    return value


def _nested(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(row, tuple) for row in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


LayerList = Annotated[
    tuple[int, ...] | tuple[tuple[int, ...], ...],
    BeforeValidator(_layer_list),
]


@lru_cache(maxsize=256)
def _split(layers: LayerList) -> PipelineSplit:
    """Parse a list once: choosing a layout asks for the same one thousands of times."""
    return PipelineSplit.parse(layers)


class Parallel(Section):
    """Sizes of the parallel groups and the layers of each pipeline stage."""

    tp: Positive
    """Tensor parallel size: NPUs that share each layer."""

    text_layers: LayerList
    """Text layers on each stage; the length is the pipeline size. One list per virtual stage."""

    vision_layers: LayerList
    """Vision layers on each stage, in a list of the same shape."""

    cp: Positive = 1
    """Context parallel size: NPUs that share each sequence; 1 shares none."""

    cp_algo: Literal["ulysses_cp_algo", "megatron_cp_algo"] = "ulysses_cp_algo"
    """How a sequence is shared: by heads (ulysses) or in a ring (megatron)."""

    vision_tp: Positive | None = None
    """Tensor parallel size of the vision encoder; null takes `tp`."""

    fsdp2: bool = False
    """True shards parameters over all NPUs with FSDP2, instead of `tp` and stages."""

    @property
    def text(self) -> PipelineSplit:
        """Text layers over the pipeline."""
        return _split(self.text_layers)

    @property
    def vision(self) -> PipelineSplit:
        """Vision layers over the pipeline."""
        return _split(self.vision_layers)

    @property
    def pp(self) -> int:
        """Pipeline parallel size."""
        return self.text.pp_size

    @property
    def vpp(self) -> int:
        """Virtual stages on each stage."""
        return self.text.vpp_size

    @property
    def vision_tp_size(self) -> int:
        """Tensor parallel size that the vision encoder really has."""
        return self.vision_tp or self.tp
