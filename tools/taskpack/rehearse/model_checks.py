"""Checks with transformers and peft: the exported folder behaves like what was trained."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskpack.errors import CheckpointError
from taskpack.rehearse.engine.dataset import IGNORED, Sample, SampleMaker, collate, read_rows
from taskpack.rehearse.engine.model import load_strictly
from taskpack.rehearse.engine.train import micro_batch_loss
from taskpack.rehearse.outcome import Check, thirds
from taskpack.rehearse.processor import load_image_processor

if TYPE_CHECKING:
    import torch

PROBE_ROWS = 3
TOKEN_FIELDS = ("input_ids", "attention_mask", "labels", "mm_token_type_ids")
NEW_TOKENS = 12
ROUNDING_ALLOWANCE = 2.0
"""Times the measured effect of one rounding, for the distance to the unrounded model."""
TIE_ALLOWANCE = 0.25
"""Share of that effect, for the few weights that sums of another order round the other way."""
LEAST_EFFECT = 2.0
"""The adapter must move the logits this many times more than the tolerance."""
LOSS_ROWS = 8
LEAST_FALL = 0.01
"""Share of the loss by which the trained model must lie below the base on the same rows."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows that every model is asked about."""

    batch: dict[str, torch.Tensor]
    prompt: dict[str, torch.Tensor]
    """The first row up to its answer."""
    lessons: Sequence[dict[str, torch.Tensor]]
    """Rows that were trained on, one by one."""
    tokenizer: Any


def make_probe(checkout: Path, task: Path) -> Probe:
    """Take a few rows of the rehearsal's own data: with an image, and without if there are any."""
    from transformers import AutoTokenizer

    data = json.loads((task / "data.json").read_text(encoding="utf-8"))
    structure = json.loads((task / "model.json").read_text(encoding="utf-8"))
    section = data["dataset_param"]
    hf_ref = checkout / section["preprocess_parameters"]["model_name_or_path"]
    basic = section["basic_parameters"]
    basic["dataset"] = ",".join(str(checkout / name) for name in basic["dataset"].split(","))
    basic["dataset_dir"] = str(checkout / basic["dataset_dir"])
    tokenizer = AutoTokenizer.from_pretrained(hf_ref)
    seq_length = structure["text_decoder"]["seq_length"]
    maker = SampleMaker(data, tokenizer, load_image_processor(hf_ref), seq_length=seq_length)
    rows, _ = read_rows(data)
    ordered = sorted(rows, key=lambda row: -len(row.images))

    def batch_of(samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
        image_id = structure["img_context_token_id"]
        return collate(samples, pad_id=tokenizer.pad_token_id, image_id=image_id)

    samples = [maker.make(row) for row in [*ordered[: PROBE_ROWS - 1], ordered[-1]]]
    asked = next(n for n, label in enumerate(samples[0].labels) if label != IGNORED)
    question = replace(
        samples[0], input_ids=samples[0].input_ids[:asked], labels=samples[0].labels[:asked]
    )
    prompt = {
        name: value[:, :asked] if value.shape[0] == 1 and name in TOKEN_FIELDS else value
        for name, value in batch_of([question]).items()
    }
    lessons = [batch_of([maker.make(row)]) for row in rows[:LOSS_ROWS]]
    return Probe(batch_of(samples), prompt, lessons, tokenizer)


def logits(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Run a model in float32 on everything its forward knows: [tokens, V]."""
    import torch

    with torch.inference_mode():
        output = model(**_known(model, inputs)).logits
    kept: torch.Tensor = output[inputs["attention_mask"].bool()]
    return kept


def _known(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    core = model.get_base_model() if hasattr(model, "get_base_model") else model
    names = inspect.signature(core.forward).parameters
    return {n: value for n, value in inputs.items() if n in names and n != "labels"}


def check_loss(
    base: Path, export: Path, probe: Probe, *, losses: Sequence[float], steps: int
) -> Check:
    """Compare base and exported model on the same rows; the log must have every step.

    Losses of single steps are of different rows and too noisy to compare over a short run.
    """
    name = "loss fell"
    if len(losses) != steps:
        return Check(name, False, f"the log has {len(losses)} losses for {steps} steps")
    before, after = (_mean_loss(load_strictly(folder), probe) for folder in (base, export))
    fall = (before - after) / before
    first, last = thirds(losses)
    detail = (
        f"{before:.3f} before and {after:.3f} after on the same {len(probe.lessons)} rows: "
        f"{fall:.1%} lower (at least {LEAST_FALL:.0%} is asked for); in the log, medians of "
        f"{first:.3f} over the first third of {steps} steps and {last:.3f} over the last"
    )
    return Check(name, fall >= LEAST_FALL, detail)


def _mean_loss(model: Any, probe: Probe) -> float:
    import torch

    with torch.inference_mode():
        losses = [float(micro_batch_loss(model.eval(), lesson)) for lesson in probe.lessons]
    return sum(losses) / len(losses)


def check_merge(base: Path, adapter: Path, export: Path, probe: Probe) -> Check:
    """Compare the exported model with base + adapter in peft.

    The adapter comes from the engine's own peft copy, not from the rank files. All three run in
    float32; the export holds each merged weight rounded once to bfloat16, and the tolerance is
    what that rounding does to peft's own merge.
    """
    import torch
    from peft import PeftModel

    model = load_strictly(base)
    plain = logits(model, probe.batch)
    peft: Any = PeftModel.from_pretrained(model, str(adapter))
    wanted = logits(peft.eval(), probe.batch)
    merged = peft.merge_and_unload()
    for parameter in merged.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
    by_peft = logits(merged, probe.batch)
    exported = logits(load_strictly(export), probe.batch)
    found, rounding = _distance(exported, wanted), _distance(by_peft, wanted)
    apart, effect = _distance(exported, by_peft), _distance(plain, wanted)
    tolerance, ties = ROUNDING_ALLOWANCE * rounding, TIE_ALLOWANCE * rounding
    passed = found <= tolerance and apart <= ties and effect >= LEAST_EFFECT * tolerance
    detail = (
        f"max |difference| {found:.2e} over {wanted.numel()} logits; tolerance {tolerance:.2e} = "
        f"{ROUNDING_ALLOWANCE:g} x what one bfloat16 rounding of the merged weights does. "
        f"From peft's own merge, rounded alike: {apart:.2e}, tolerance {ties:.2e} for weights on "
        f"a tie. The adapter itself moves the logits by {effect:.2e}"
    )
    return Check("merged model equals base + adapter", passed, detail)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def check_loads(export: Path, probe: Probe) -> Check:
    """Load the exported folder as a user would, and let it write."""
    import torch

    name = "export loads and generates"
    try:
        model: Any = load_strictly(export)
    except CheckpointError as error:
        return Check(name, False, str(error.what))
    count = len(probe.prompt["input_ids"][0])
    with torch.inference_mode():
        ids = model.eval().generate(
            **_for_generate(model, probe.prompt), max_new_tokens=NEW_TOKENS, do_sample=False
        )
    text = probe.tokenizer.decode(ids[0, count:], skip_special_tokens=True)
    new = len(ids[0]) - count
    detail = f"no missing or unexpected tensor; {new} tokens generated: {text!r}"
    return Check(name, new > 0, detail)


def _for_generate(model: Any, prompt: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    known = _known(model, prompt)
    return {name: value for name, value in known.items() if name != "labels"}
