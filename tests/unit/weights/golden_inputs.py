"""The inputs that the stock converter's recorded outputs were made from.

Values are integers of a generator seeded by the tensor's name, scaled by powers of two, so every
machine makes the same bytes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

SEED = 20250101
LAYERS, HIDDEN, HEADS, GROUPS, FFN, VOCAB = 4, 64, 8, 4, 96, 320
BLOCKS, VISION, VISION_HEADS, VISION_FFN = 4, 32, 4, 40
KEYS = GROUPS * HIDDEN // HEADS
MERGED = 4 * VISION
R = 8


def values(tag: str, shape: tuple[int, ...], scale: float, offset: float = 0.0) -> torch.Tensor:
    digest = hashlib.sha256(f"{SEED}/{tag}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    whole = torch.randint(-32768, 32768, shape, generator=generator, dtype=torch.int64)
    return (whole.to(torch.float32) * (scale / 32768.0) + offset).to(torch.bfloat16)


def weight(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if "norm" in name or ".ln_q." in name:
        return values(name, shape, 0.25, 1.0)
    return values(name, shape, 0.5 if name.endswith(".bias") else 0.125)


def linears() -> Iterator[tuple[str, int, int, bool]]:
    """Yield (HF module, rows, columns, bias) of every linear but the embedding and the head."""
    for layer in range(BLOCKS):
        block = f"visual.blocks.{layer}"
        yield f"{block}.attn.qkv", 3 * VISION, VISION, True
        yield f"{block}.attn.proj", VISION, VISION, True
        yield f"{block}.mlp.gate_proj", VISION_FFN, VISION, True
        yield f"{block}.mlp.up_proj", VISION_FFN, VISION, True
        yield f"{block}.mlp.down_proj", VISION, VISION_FFN, True
    yield "visual.merger.mlp.0", MERGED, MERGED, True
    yield "visual.merger.mlp.2", HIDDEN, MERGED, True
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        for which, rows in (("q", HIDDEN), ("k", KEYS), ("v", KEYS)):
            yield f"{block}.self_attn.{which}_proj", rows, HIDDEN, True
        yield f"{block}.self_attn.o_proj", HIDDEN, HIDDEN, False
        yield f"{block}.mlp.gate_proj", FFN, HIDDEN, False
        yield f"{block}.mlp.up_proj", FFN, HIDDEN, False
        yield f"{block}.mlp.down_proj", HIDDEN, FFN, False


def shapes(*, tied: bool) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "visual.patch_embed.proj.weight": (VISION, 3, 2, 14, 14),
        "visual.merger.ln_q.weight": (VISION,),
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    if not tied:
        found["lm_head.weight"] = (VOCAB, HIDDEN)
    for module, rows, columns, bias in linears():
        found[f"{module}.weight"] = (rows, columns)
        if bias:
            found[f"{module}.bias"] = (rows,)
    for layer in range(BLOCKS):
        for norm in ("norm1", "norm2"):
            found[f"visual.blocks.{layer}.{norm}.weight"] = (VISION,)
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{norm}.weight"] = (HIDDEN,)
    return found


def make_hf(folder: Path, *, tied: bool = False, shards: int = 3) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "qwen2_5_vl",
                "num_hidden_layers": LAYERS,
                "hidden_size": HIDDEN,
                "num_attention_heads": HEADS,
                "num_key_value_heads": GROUPS,
                "intermediate_size": FFN,
                "vocab_size": VOCAB,
                "tie_word_embeddings": tied,
                "vision_config": {
                    "depth": BLOCKS,
                    "hidden_size": VISION,
                    "intermediate_size": VISION_FFN,
                    "num_heads": VISION_HEADS,
                    "in_chans": 3,
                    "patch_size": 14,
                    "temporal_patch_size": 2,
                    "spatial_merge_size": 2,
                },
            }
        )
    )
    tensors = {name: weight(name, shape) for name, shape in shapes(tied=tied).items()}
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[shard::shards]}
        save_file(part, str(folder / file), metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def make_peft(folder: Path) -> Path:
    """An adapter with its own A for every HF module of the layers."""
    folder.mkdir(parents=True)
    tensors = {}
    for module, rows, columns, _ in linears():
        if "merger" not in module:
            for which, shape in (("A", (R, columns)), ("B", (rows, R))):
                name = f"base_model.model.{module}.lora_{which}.weight"
                tensors[name] = values(f"peft/{module}.{which}", shape, 0.25)
    save_file(tensors, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({"r": R, "lora_alpha": 16}))
    return folder


def make_fused_adapter(folder: Path) -> Path:
    """A fused MindSpeed-MM adapter for TP 2, text layers [1, 3] and vision layers [4, 0]."""
    linear = {}
    for layer in range(BLOCKS):
        block = f"image_encoder.encoder.blocks.layers.{layer}"
        linear[f"{block}.self_attention.linear_qkv"] = (0, 3 * VISION, VISION, "column")
        linear[f"{block}.self_attention.linear_proj"] = (0, VISION, VISION, "row")
        linear[f"{block}.mlp.linear_fc1"] = (0, 2 * VISION_FFN, VISION, "glu")
        linear[f"{block}.mlp.linear_fc2"] = (0, VISION, VISION_FFN, "row")
    linear["image_encoder.projector.encoder.linear_fc1"] = (0, MERGED, MERGED, "column")
    linear["image_encoder.projector.encoder.linear_fc2"] = (0, HIDDEN, MERGED, "row")
    for layer in range(LAYERS):
        block = f"text_decoder.decoder.layers.{layer}"
        stage = 0 if layer == 0 else 1
        linear[f"{block}.self_attention.linear_qkv"] = (stage, HIDDEN + 2 * KEYS, HIDDEN, "column")
        linear[f"{block}.self_attention.linear_proj"] = (stage, HIDDEN, HIDDEN, "row")
        linear[f"{block}.mlp.linear_fc1"] = (stage, 2 * FFN, HIDDEN, "glu")
        linear[f"{block}.mlp.linear_fc2"] = (stage, HIDDEN, FFN, "row")
    ranks: dict[tuple[int, int], dict[str, torch.Tensor]] = {
        (tp_rank, stage): {} for tp_rank in range(2) for stage in range(2)
    }
    for module, (stage, rows, columns, kind) in linear.items():
        a = values(f"mmlora/{module}.A", (R, columns), 0.25)
        b = values(f"mmlora/{module}.B", (rows, R), 0.25)
        local = module.replace(".layers.", ".layers.@") if stage == 0 else _shifted(module)
        for tp_rank in range(2):
            state = ranks[tp_rank, stage]
            name = local.replace("@", "")
            state[f"{name}.lora_A.default.weight"] = _half(a, 1, tp_rank) if kind == "row" else a
            state[f"{name}.lora_B.default.weight"] = _b_of(b, kind, tp_rank)
    for (tp_rank, stage), state in ranks.items():
        path = folder / "iter_0000500" / f"mp_rank_{tp_rank:02d}_{stage:03d}"
        path.mkdir(parents=True)
        torch.save({"model": state, "checkpoint_version": 3.0}, path / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("500")
    return folder


def _shifted(module: str) -> str:
    head, _, tail = module.partition(".layers.")
    number, _, rest = tail.partition(".")
    return f"{head}.layers.{int(number) - 1}.{rest}"


def _half(tensor: torch.Tensor, axis: int, tp_rank: int) -> torch.Tensor:
    return tensor.chunk(2, dim=axis)[tp_rank].contiguous().clone()


def _b_of(b: torch.Tensor, kind: str, tp_rank: int) -> torch.Tensor:
    if kind == "row":
        return b
    if kind == "column":
        return _half(b, 0, tp_rank)
    gate, up = b.chunk(2, dim=0)
    return torch.cat([_half(gate, 0, tp_rank), _half(up, 0, tp_rank)])


def digests(folder: Path) -> Mapping[str, Mapping[str, list[object]]]:
    """Record every tensor below a folder: `file:state dict` to name to type, shape, digest."""
    found: dict[str, dict[str, list[object]]] = {}
    for path in sorted(folder.rglob("*.pt")):
        content = torch.load(path, weights_only=True)
        for key, state in content.items():
            if key.startswith("model"):
                found[f"{path.relative_to(folder)}:{key}"] = _recorded(state)
    for path in sorted(folder.rglob("*.safetensors")):
        from safetensors.torch import load_file

        found[f"{path.relative_to(folder)}:"] = _recorded(load_file(str(path)))
    return found


def _recorded(state: Mapping[str, torch.Tensor]) -> dict[str, list[object]]:
    return {
        name: [
            str(tensor.dtype).removeprefix("torch."),
            list(tensor.shape),
            hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:32]
            if tensor.dim()
            else "",
        ]
        for name, tensor in state.items()
    }
