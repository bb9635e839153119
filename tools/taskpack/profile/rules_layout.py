"""Rules about the shape of the model and how it lies on the NPUs."""

from __future__ import annotations

from collections.abc import Iterator

from taskpack.parallel import PipelineSplit
from taskpack.profile.faults import Fault
from taskpack.profile.model import Profile
from taskpack.profile.rules import choices, divisors, rule
from taskpack.profile.yaml_loader import KeyPath

_TEXT: KeyPath = ("parallel", "text_layers")
_VISION: KeyPath = ("parallel", "vision_layers")


@rule("architecture")
def _heads(profile: Profile) -> Iterator[Fault]:
    text, vision = profile.architecture.text, profile.architecture.vision
    at: KeyPath = ("architecture", "text")
    if text.attention_heads * text.head_dim != text.hidden_size:
        yield Fault(
            (*at, "head_dim"),
            f"{text.attention_heads} heads of {text.head_dim} are not the hidden size "
            f"{text.hidden_size}",
            "the trainer takes hidden_size / attention_heads as the width of a head",
            "copy hidden_size, attention_heads and head_dim from the model's config.json",
        )
    if text.attention_heads % text.query_groups:
        yield Fault(
            (*at, "query_groups"),
            f"{text.query_groups} query groups do not divide {text.attention_heads} heads",
            "each group holds the same number of query heads",
            choices(divisors(text.attention_heads)),
        )
    if 2 * sum(text.mrope_section) != text.head_dim:
        yield Fault(
            (*at, "mrope_section"),
            f"mrope_section {list(text.mrope_section)} adds up to {sum(text.mrope_section)}",
            f"its sum is half of head_dim {text.head_dim}",
            "copy rope_scaling.mrope_section from the model's config.json",
        )
    if vision.hidden_size % vision.attention_heads:
        yield Fault(
            ("architecture", "vision", "attention_heads"),
            f"{vision.attention_heads} vision heads do not divide the hidden size "
            f"{vision.hidden_size}",
            "each head has the same width",
            choices([n for n in divisors(vision.hidden_size) if n <= 64]),
        )


@rule("architecture")
def _windows(profile: Profile) -> Iterator[Fault]:
    vision = profile.architecture.vision
    token = vision.patch_size * vision.spatial_merge_size
    if vision.window_size is not None and vision.window_size % token:
        yield Fault(
            ("architecture", "vision", "window_size"),
            f"a window of {vision.window_size} pixels cuts tokens of {token} pixels",
            "windows hold whole tokens of patch_size x spatial_merge_size",
            f"use a multiple of {token}",
        )
    beyond = [layer for layer in vision.full_attention_layers if layer >= vision.layers]
    if beyond:
        yield Fault(
            ("architecture", "vision", "full_attention_layers"),
            f"full_attention_layers names layer {beyond[0]} of {vision.layers}",
            "layers are counted from 0",
            f"use numbers from 0 to {vision.layers - 1}",
        )


@rule("architecture", "parallel", "hf")
def _sums(profile: Profile) -> Iterator[Fault]:
    parallel, shape = profile.parallel, profile.architecture
    for path, split, layers in (
        (_TEXT, parallel.text, shape.text.layers),
        (_VISION, parallel.vision, shape.vision.layers),
    ):
        if split.total != layers:
            yield Fault(
                path,
                f"{path[-1]} {split.to_lists()} holds {split.total} layers, {profile.title} "
                f"has {layers}",
                "every layer lives on exactly one stage",
                _whole_list(split, layers),
            )


def _whole_list(split: PipelineSplit, layers: int) -> str:
    """Word the nearest lists that hold all layers: the last stage gives or takes, or the fullest.

    A list that is mostly wrong gets the number alone.
    """
    gap = layers - split.total
    number = f"{'add' if gap > 0 else 'take away'} {abs(gap)}"
    near: list[list[int]] = []
    held = [index for index, count in enumerate(split.chunks[0]) if count]
    if split.vpp_size > 1 or not held or abs(gap) > layers // 2:
        return number
    wanted = min if gap > 0 else max
    for index in (held[-1], wanted(held, key=split.chunks[0].__getitem__)):
        counts = list(split.chunks[0])
        counts[index] += gap
        if counts[index] > 0 and counts not in near:
            near.append(counts)
    return f"{number}, as in {' or '.join(map(str, near))}" if near else number


@rule("architecture", "parallel", "hf", "generate", "train", "data", "extra")
def _generating(profile: Profile) -> Iterator[Fault]:
    """Check the layout that answers by the rules of the one that trains."""
    given = profile.generate
    if (given.text_layers is None) != (given.vision_layers is None):
        missing = "text_layers" if given.text_layers is None else "vision_layers"
        yield Fault(
            ("generate", missing),
            "generate names the layers of one part only",
            "both lists count the same pipeline",
            "give text_layers and vision_layers, or neither",
        )
        return
    at = {_TEXT: ("generate", "text_layers"), _VISION: ("generate", "vision_layers")}
    for broken in (*_sums(profile.generating), *_stages(profile.generating)):
        yield Fault(at[broken.path], broken.what, broken.why, broken.fix)


@rule("architecture", "parallel")
def _stages(profile: Profile) -> Iterator[Fault]:
    text, vision = profile.parallel.text, profile.parallel.vision
    if (text.pp_size, text.vpp_size) != (vision.pp_size, vision.vpp_size):
        yield Fault(
            _VISION,
            f"vision_layers has {_shape(vision)}, text_layers has {_shape(text)}",
            "both lists count the same pipeline; only special trainers accept a shorter one",
            f"give vision_layers {_shape(text)}, with 0 where no vision layer lives",
        )
        return
    seeing = [place for place, (_, _, layers) in enumerate(vision.counts()) if layers]
    reading = [place for place, (_, _, layers) in enumerate(text.counts()) if layers]
    if seeing and reading and seeing[-1] > reading[0]:
        yield Fault(
            _VISION,
            f"vision ends on stage {seeing[-1]}, but text starts on stage {reading[0]}",
            "text reads what vision has finished, so vision must end no later",
            f"move the text layers to stage {seeing[-1]} and later, or the vision layers to "
            f"stage {reading[0]} and earlier: vision_layers "
            f"{_all_on(vision, reading[0], profile.architecture.vision.layers)}",
        )
        return
    empty = sorted(set(range(text.pp_size * text.vpp_size)) - {*seeing, *reading})
    if empty:
        yield Fault(
            _TEXT,
            f"stage {empty[0]} holds no layer",
            "each stage passes on what its own layers computed",
            "give every stage a layer, or use fewer stages",
        )


def _all_on(split: PipelineSplit, place: int, layers: int) -> list[int] | list[list[int]]:
    """Give a list of the same shape with all layers on one (virtual) stage."""
    flat = [layers if index == place else 0 for index, _ in enumerate(split.counts())]
    size = split.pp_size
    rows = tuple(tuple(flat[start : start + size]) for start in range(0, len(flat), size))
    return PipelineSplit(rows).to_lists()


def _shape(split: PipelineSplit) -> str:
    stages = f"{split.pp_size} stage{'s' if split.pp_size > 1 else ''}"
    return stages if split.vpp_size == 1 else f"{split.vpp_size} lists of {stages}"


@rule("architecture", "parallel", "hf")
def _tensor_parallel(profile: Profile) -> Iterator[Fault]:
    text, vision = profile.architecture.text, profile.architecture.vision
    sizes = {
        "query groups": text.query_groups,
        "vision heads": vision.attention_heads,
        "feed-forward rows of text": text.ffn_hidden_size,
        "feed-forward rows of vision": vision.ffn_hidden_size,
        "vocabulary rows": text.vocab_size,
    }
    tp = profile.parallel.tp
    broken = [f"{size} {name}" for name, size in sizes.items() if size % tp]
    if broken:
        yield Fault(
            ("parallel", "tp"),
            f"parallel.tp {tp} does not divide the {' and the '.join(broken)} of {profile.title}",
            f"each rank must hold whole {broken[0].partition(' ')[2]}",
            choices(divisors(*sizes.values())),
        )
    if profile.parallel.vision_tp_size != tp:
        yield Fault(
            ("parallel", "vision_tp"),
            f"parallel.vision_tp {profile.parallel.vision_tp} differs from parallel.tp {tp}",
            "the rendered launch trains vision and text in the same tensor parallel groups",
            f"leave vision_tp out, or set it to {tp}",
        )


@rule("architecture", "parallel")
def _context_parallel(profile: Profile) -> Iterator[Fault]:
    parallel, heads = profile.parallel, profile.architecture.text.attention_heads
    if heads % parallel.tp or parallel.cp_algo != "ulysses_cp_algo":
        return
    per_rank = heads // parallel.tp
    if per_rank % parallel.cp:
        yield Fault(
            ("parallel", "cp"),
            f"parallel.cp {parallel.cp} with tp {parallel.tp} does not divide {heads} heads",
            "ulysses_cp_algo shares whole heads between tp x cp ranks",
            f"{choices(divisors(per_rank))}, or cp_algo: megatron_cp_algo",
        )


@rule("parallel", "tuning")
def _virtual_stages(profile: Profile) -> Iterator[Fault]:
    if profile.parallel.vpp == 1:
        return
    if profile.parallel.pp < 3:
        yield Fault(
            _TEXT,
            f"{profile.parallel.vpp} virtual stages on {profile.parallel.pp} stages",
            "the interleaved schedule needs more than 2 stages",
            "use flat lists, or 3 stages and more",
        )
    if profile.tuning.mode == "lora":
        yield Fault(
            _TEXT,
            f"LoRA with {profile.parallel.vpp} virtual stages",
            "the trainer does not support adapters on virtual stages",
            "use flat lists, or tuning.mode: full",
        )


@rule("parallel", "platform")
def _world(profile: Profile) -> Iterator[Fault]:
    parallel, platform = profile.parallel, profile.platform
    size = profile.model_parallel_size
    if profile.world_size % size:
        least = profile.least_nodes
        yield Fault(
            ("platform", "nodes"),
            f"{platform.nodes} x {platform.npus_per_node} NPUs do not hold whole copies of "
            f"TP {parallel.tp} x PP {parallel.pp} x CP {parallel.cp} = {size} NPUs",
            "every copy of the model needs all of its NPUs",
            f"use {least} nodes of {platform.npus_per_node} NPUs"
            + (f" or a multiple of {least}" if least > 1 else ""),
        )


RULES = (
    _heads,
    _windows,
    _sums,
    _stages,
    _generating,
    _tensor_parallel,
    _context_parallel,
    _virtual_stages,
    _world,
)
