"""Rules about the shape of a model and how it lies on the NPUs."""

from __future__ import annotations

from rule_case import Case

FOUR = "parallel.text_layers=[1, 10, 10, 7]; parallel.vision_layers=[32, 0, 0, 0]"
VIRTUAL = (
    "tuning.mode=full; parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]; "
    "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]"
)
B3, B32, OLD = "qwen2.5vl-3b", "qwen2.5vl-32b", "qwen2vl-7b"

LAYOUT = {
    "tp divides the groups": Case(
        "parallel.tp=3", "3 does not divide the 4 query groups", "use 1, 2 or 4", "parallel.tp=4"
    ),
    "tp of the 3b": Case(
        "parallel.tp=4", "does not divide the 2 query groups", "use 1 or 2", "parallel.tp=2", B3
    ),
    "tp of the 32b": Case(
        "parallel.tp=16; platform.nodes=16", "16 does not divide the 8 query groups",
        "use 1, 2, 4 or 8", "parallel.tp=8; platform.nodes=8", B32,
    ),
    "tp is a size": Case(
        "parallel.tp=0", "parallel.tp cannot be 0", "a number greater than 0", "parallel.tp=1"
    ),
    "tp is whole": Case(
        "parallel.tp=1.5", "parallel.tp cannot be 1.5", "a whole number", "parallel.tp=2"
    ),
    "text layers are all there": Case(
        "parallel.text_layers=[12, 15]", "holds 27 layers", "add 1, as in [12, 16] or [13, 15]",
        "parallel.text_layers=[13, 15]",
    ),
    "no text layer too many": Case(
        "parallel.text_layers=[13, 16]", "holds 29 layers", "take away 1, as in [13, 15]",
        "parallel.text_layers=[12, 16]",
    ),
    "vision layers are all there": Case(
        "parallel.vision_layers=[31, 0]", "holds 31 layers", "add 1, as in [32, 0]",
        "parallel.vision_layers=[32, 0]",
    ),
    "vision ends before text starts": Case(
        "parallel.vision_layers=[0, 32]; parallel.text_layers=[18, 18]",
        "vision ends on stage 1, but text starts on stage 0", "vision_layers [32, 0]",
        "parallel.vision_layers=[16, 16]; parallel.text_layers=[0, 36]", B3,
    ),
    "vision may end where text starts": Case(
        "parallel.vision_layers=[30, 2, 0, 0]; parallel.text_layers=[1, 10, 10, 7]",
        "vision ends on stage 1", "vision_layers [32, 0, 0, 0]",
        "parallel.vision_layers=[30, 2, 0, 0]; parallel.text_layers=[0, 11, 10, 7]",
    ),
    "lists are of one length": Case(
        "parallel.text_layers=[12, 8, 8]; platform.nodes=3",
        "vision_layers has 2 stages, text_layers has 3 stages", "give vision_layers 3 stages",
        "parallel.text_layers=[12, 8, 4, 4]; parallel.vision_layers=[32, 0, 0, 0]",
    ),
    "no stage is empty": Case(
        "parallel.text_layers=[1, 17, 0, 10]; parallel.vision_layers=[32, 0, 0, 0]",
        "stage 2 holds no layer", "give every stage a layer", FOUR,
    ),
    "lists are lists": Case(
        "parallel.text_layers=28", "parallel.text_layers", "a list of layers per stage",
        "parallel.text_layers=[28]; parallel.vision_layers=[32]",
    ),
    "lists hold counts": Case(
        "parallel.text_layers=[-1, 29]", "parallel.text_layers", "a list of layers per stage",
        "parallel.text_layers=[1, 27]",
    ),
    "virtual stages are of one length": Case(
        VIRTUAL.replace("[9, 9, 9, 6]", "[9, 9, 15]"), "parallel.text_layers", "all of one length",
        VIRTUAL, B32,
    ),
    "virtual stages need three stages": Case(
        "parallel.text_layers=[[7, 7], [7, 7]]; parallel.vision_layers=[[32, 0], [0, 0]]",
        "2 virtual stages on 2 stages", "3 stages and more",
        "parallel.text_layers=[[3, 4, 4, 3], [3, 4, 4, 3]]; "
        "parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]",
    ),
    "no adapters on virtual stages": Case(
        f"{VIRTUAL}; tuning.mode=lora", "LoRA with 2 virtual stages", "tuning.mode: full",
        VIRTUAL, B32,
    ),
    "vision shares the groups of text": Case(
        "parallel.tp=2; parallel.vision_tp=1", "vision_tp 1 differs from parallel.tp 2",
        "set it to 2", "parallel.tp=2; parallel.vision_tp=2",
    ),
    "ulysses shares whole heads": Case(
        "parallel.cp=8; platform.nodes=2", "8 with tp 1 does not divide 28 heads",
        "use 1, 2, 4, 7, 14 or 28", "parallel.cp=4; platform.nodes=2",
    ),
    "the ring shares any": Case(
        "parallel.cp=3; platform.nodes=3; parallel.cp_algo=ring", "parallel.cp_algo cannot be",
        "ulysses_cp_algo, megatron_cp_algo",
        "parallel.cp=3; platform.nodes=3; parallel.cp_algo=megatron_cp_algo",
    ),
    "nodes hold whole copies": Case(
        "platform.nodes=1", "1 x 8 NPUs do not hold whole copies",
        "use 2 nodes of 8 NPUs or a multiple of 2", "platform.nodes=4", B32,
    ),
    "no half copies": Case(
        "platform.nodes=3", "3 x 8 NPUs do not hold whole copies",
        "use 2 nodes of 8 NPUs or a multiple of 2", "platform.nodes=2", B32,
    ),
    "a node has up to 16 npus": Case(
        "platform.npus_per_node=17", "platform.npus_per_node cannot be 17", "a number up to 16",
        "platform.npus_per_node=16",
    ),
    "devices are known": Case(
        "platform.device=A4", "platform.device cannot be 'A4'", "use one of: A2, A3",
        "platform.device=A3",
    ),
}  # fmt: skip

SHAPE = {
    "heads make the width": Case(
        "architecture.text.head_dim=64; architecture.text.mrope_section=[8, 12, 12]",
        "28 heads of 64 are not the hidden size 3584", "config.json",
        "architecture.text.head_dim=128",
    ),
    "groups divide heads": Case(
        "architecture.text.query_groups=3", "3 query groups do not divide 28 heads",
        "use 1, 2, 4, 7, 14 or 28", "architecture.text.query_groups=7",
    ),
    "mrope makes half a head": Case(
        "architecture.text.mrope_section=[16, 24, 25]", "adds up to 65", "mrope_section",
        "architecture.text.mrope_section=[20, 22, 22]",
    ),
    "mrope has three sections": Case(
        "architecture.text.mrope_section=[16, 48]", "has only 2 values", "give the values",
        "architecture.text.mrope_section=[16, 24, 24]",
    ),
    "vision heads divide its width": Case(
        "architecture.vision.attention_heads=12", "12 vision heads do not divide",
        "use 1, 2, 4, 5, 8, 10, 16", "architecture.vision.attention_heads=10",
    ),
    "windows hold whole tokens": Case(
        "architecture.vision.window_size=100", "cuts tokens of 28 pixels", "a multiple of 28",
        "architecture.vision.window_size=140",
    ),
    "full attention layers exist": Case(
        "architecture.vision.full_attention_layers=[7, 32]", "names layer 32 of 32",
        "from 0 to 31", "architecture.vision.full_attention_layers=[7, 31]",
    ),
    "windows belong to the family": Case(
        "architecture.vision.window_size=112", "qwen2_vl has no window_size", "leave it out",
        "architecture.vision.window_size=null", OLD,
    ),
    "its family needs windows": Case(
        "architecture.vision.window_size=null", "qwen2_5_vl needs window_size", "config.json",
        "architecture.vision.window_size=112",
    ),
    "tp divides the vocabulary": Case(
        "architecture.text.vocab_size=152065; parallel.tp=2",
        "does not divide the 152065 vocabulary rows", "use 1",
        "architecture.text.vocab_size=152066; parallel.tp=2",
    ),
}  # fmt: skip
