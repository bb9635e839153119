"""What once passed without a word: mixed resumes, half comparisons, unread flags, lost values."""

import json
import shutil
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
from builders import LAYOUT_FLAGS, Refusals, run
from safetensors.torch import load_file, save_file
from taskpack.errors import CheckFailed
from taskpack.weights import out_dir, verify_equal
from taskpack.weights.casts import from_fp64, to_fp32

pytestmark = pytest.mark.torch
Capture = pytest.CaptureFixture[str]
TASK = Path(__file__).parents[3] / "tasks" / "qwen2.5vl-7b"

TO_MM = ("convert", "hf-to-mm", "--hf", "{hf}", "--mm", "{out}")
TO_HF = ("convert", "mm-to-hf", "--mm", "{base}", "--hf-ref", "{hf}", "--hf", "{out}")
MERGE = ("lora", "merge", "--base", "{base}", "--adapter", "{one}", "--out", "{out}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `hf`, `base`, two adapters on it, and a peft adapter."""
    folder = tmp_path_factory.mktemp("made")
    assert builders.convert(builders.make_hf(folder / "hf"), folder / "base") == 0
    one = builders.make_adapter(folder / "one", folder / "base")
    other = builders.make_adapter(folder / "other", folder / "base")
    for path in other.rglob("*.pt"):
        content = torch.load(path, weights_only=False)
        content["model"] = {name: value + 1 for name, value in content["model"].items()}
        torch.save(content, path)
    assert (
        run(
            "lora", "to-peft", "--adapter", one, "--out", folder / "peft", "--hf-ref", folder / "hf"
        )
        == 0
    )
    return folder


class Interrupter:
    """Interrupts a run after some tensors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, after: int, *command: object) -> None:
        record, seen = out_dir.OutDir.record, []

        def stopping(self: out_dir.OutDir, *arguments: Any) -> list[str]:
            result = record(self, *arguments)
            seen.append(1)
            if len(seen) >= after:
                raise KeyboardInterrupt
            return result

        with self._monkeypatch.context() as patch:
            patch.setattr(out_dir.OutDir, "record", stopping)
            assert run(*command, "--threads", "1") == 130


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Interrupter:
    return Interrupter(monkeypatch)


@pytest.mark.parametrize("kind", ["merge", "export"])
@pytest.mark.parametrize("change", ["adapter", "targets"])
def test_a_resumed_merge_is_of_one_adapter_and_one_choice(
    kind: str, change: str, made: Path, tmp_path: Path, interrupted: Interrupter, capsys: Capture
) -> None:
    out = tmp_path / "out"
    command = ["lora", "merge", "--base", made / "base", "--out", out]
    if kind == "export":
        command = ["export", "--base", made / "hf", "--hf-ref", made / "hf", "--hf", out]
    interrupted(40, *command, "--adapter", made / "one", "--targets", "linear_qkv")
    second = ("other", "linear_qkv") if change == "adapter" else ("one", "linear_proj")
    again = (*command, "--adapter", made / second[0], "--targets", second[1])
    said = Refusals(capsys)(2, *again, "--resume")
    assert "had other inputs" in said and not out.exists()
    # the same words go on, to the same bytes
    assert run(*command, "--adapter", made / "one", "--targets", "linear_qkv", "--resume") == 0
    plain = [tmp_path / "plain" if part == out else part for part in command]
    assert run(*plain, "--adapter", made / "one", "--targets", "linear_qkv") == 0
    assert tree(out) == tree(tmp_path / "plain")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_expanded_adapter_resumes(made: Path, tmp_path: Path, interrupted: Interrupter) -> None:
    words = ("--peft", made / "peft", "--hf-ref", made / "hf", "--expand-rank", *LAYOUT_FLAGS)
    out = tmp_path / "new" / "folders" / "out"  # the parents do not exist yet
    interrupted(5, "lora", "from-peft", *words, "--out", out)
    assert run("lora", "from-peft", *words, "--out", out, "--resume") == 0
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_adapter_of_mixed_types_is_not_expanded(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    peft = shutil.copytree(made / "peft", tmp_path / "peft")
    tensors = load_file(peft / "adapter_model.safetensors")
    name = next(name for name in tensors if "k_proj.lora_B" in name)
    tensors[name] = tensors[name].to(torch.float32)
    save_file(tensors, peft / "adapter_model.safetensors")
    out = tmp_path / "out"
    words = ("--peft", peft, "--hf-ref", made / "hf", "--expand-rank", *LAYOUT_FLAGS)
    said = Refusals(capsys)(3, "lora", "from-peft", *words, "--out", out, out=out)
    assert "several element types" in said


def test_a_folder_that_holds_less_is_not_equal(made: Path, tmp_path: Path) -> None:
    vision = tmp_path / "vision"
    assert builders.convert(made / "hf", vision, "--vit-only") == 0
    for pair in ((made / "base", vision), (vision, made / "base"), (made / "hf", vision)):
        with pytest.raises(CheckFailed, match=r"tensors are not in"):
            verify_equal(*pair)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("verify", "{base}", "--adapter", "/nonexistent"), "--adapter has no effect without B"),
        (("verify", "{base}", "--alpha", "3"), "--alpha has no effect without B"),
        (("verify", "{base}", "{hf}", "--alpha", "3"), "--alpha has no effect without --adapter"),
        (
            ("export", "--base", "{hf}", "--hf-ref", "{hf}", "--hf", "{out}", "--alpha", "2"),
            "no effect without --adapter",
        ),
        (
            (
                "convert",
                "hf-to-mm",
                "--hf",
                "{hf}",
                "--mm",
                "{out}",
                *LAYOUT_FLAGS,
                "--world-size",
                "8",
            ),
            "--world-size has no effect without --ranks",
        ),
        (
            (
                "convert",
                "hf-to-mm",
                "--hf",
                "{hf}",
                "--mm",
                "{out}",
                "--task",
                str(TASK),
                "--canonical",
            ),
            "--task and layout flags were both given",
        ),
        (
            (
                "convert",
                "hf-to-mm",
                "--hf",
                "{hf}",
                "--mm",
                "{out}",
                "--task",
                str(TASK),
                "--ep",
                "2",
            ),
            "--task and layout flags were both given",
        ),
        (
            (
                "convert",
                "mm-to-hf",
                "--mm",
                "{base}",
                "--hf-ref",
                "{hf}",
                "--hf",
                "{out}",
                "--canonical",
            ),
            "--tp, --llm-layers, --vit-layers is missing",
        ),
        (
            (
                "lora",
                "merge",
                "--base",
                "{base}",
                "--adapter",
                "{one}",
                "--out",
                "{out}",
                "--untie",
            ),
            "unrecognized arguments: --untie",
        ),
    ],
)
def test_a_flag_without_effect_is_refused(
    command: tuple[str, ...], flag: str, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    places = {name: made / name for name in ("base", "hf", "one")} | {"out": tmp_path / "out"}
    words = [word.format(**places) for word in command]
    assert flag in Refusals(capsys)(2, *words, out=tmp_path / "out")


def test_an_entry_without_a_tensor_is_not_dropped(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    mm = shutil.copytree(made / "base", tmp_path / "mm")
    path = mm / "release" / "mp_rank_00_000" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    content["model"]["prompt_table"] = [1, 2, 3]
    torch.save(content, path)
    out = tmp_path / "out"
    words = ("convert", "mm-to-hf", "--mm", mm, "--hf-ref", made / "hf", "--hf", out)
    assert "prompt_table" in Refusals(capsys)(3, *words, out=out)


@pytest.mark.parametrize(("value", "code"), [(60000.0, 0), (1e5, 3)])
def test_a_cast_that_loses_a_number_to_infinity_is_refused(
    value: float, code: int, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    hf = shutil.copytree(made / "hf", tmp_path / "hf")
    shard = next(p for p in hf.glob("*.safetensors") if "model.norm.weight" in load_file(p))
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(shard).items()}
    tensors["model.norm.weight"][3] = value
    save_file(tensors, shard, metadata={"format": "pt"})
    for other in hf.glob("*.safetensors"):
        if other != shard:
            zeros = {name: torch.zeros_like(t) for name, t in load_file(other).items()}
            save_file(zeros, other, metadata={"format": "pt"})
    words = ("convert", "hf-to-mm", "--hf", hf, "--mm", tmp_path / "mm", *LAYOUT_FLAGS)
    if code == 0:
        assert run(*words, "--dtype", "fp16") == 0
        return
    said = Refusals(capsys)(3, *words, "--dtype", "fp16")
    assert not (tmp_path / "mm").exists()
    assert "does not fit fp16" in said and "final_layernorm" in said


def test_another_vocabulary_in_the_config_is_named(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    ref = shutil.copytree(made / "hf", tmp_path / "ref")
    config = json.loads((ref / "config.json").read_text()) | {"vocab_size": 41}
    (ref / "config.json").write_text(json.dumps(config))
    out = tmp_path / "out"
    words = ("convert", "mm-to-hf", "--mm", made / "base", "--hf-ref", ref, "--hf", out)
    assert "the embedding has 40 rows, config.json says 41" in Refusals(capsys)(3, *words, out=out)


@pytest.mark.parametrize("key", ["lora", "merged"])
def test_a_layout_file_with_text_for_a_table_is_damaged(
    key: str, made: Path, tmp_path: Path, capsys: Capture
) -> None:
    base = shutil.copytree(made / "base", tmp_path / "base")
    path = base / "taskpack_layout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: "x"}))
    out = tmp_path / "out"
    words = ("lora", "merge", "--base", base, "--adapter", made / "one", "--out", out)
    assert "the layout file is damaged" in Refusals(capsys)(3, *words, out=out)


def test_sizes_of_zero_are_refused_before_ranks_are_counted(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    flags = ("--tp", "0", "--llm-layers", "[1,3]", "--vit-layers", "[4,0]", "--ranks", "0")
    words = ("convert", "hf-to-mm", "--hf", made / "hf", "--mm", out, *flags)
    assert "below 1" in Refusals(capsys)(2, *words, "--world-size", "8", out=out)


def test_a_fresh_export_of_a_shard_with_another_name_is_whole(made: Path, tmp_path: Path) -> None:
    ref = tmp_path / "ref"
    ref.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    for shard in (made / "hf").glob("*.safetensors"):
        tensors |= load_file(shard)
    save_file(tensors, ref / "weights.safetensors", metadata={"format": "pt"})
    shutil.copy(made / "hf" / "config.json", ref)
    out = tmp_path / "out"
    words = ("convert", "mm-to-hf", "--mm", made / "base", "--hf-ref", ref, "--hf", out)
    assert run(*words) == 0
    assert run("verify", out) == 0


def test_a_merge_rounds_to_bf16_once() -> None:
    # 1 + 2**-8 is halfway between two bf16 numbers; rounding to fp32 first loses the rest
    cases = {1 + 2**-8 + 2**-40: 0x3F81, 1 + 2**-8: 0x3F80, 1 + 3 * 2**-8 - 2**-40: 0x3F81}
    for value, bits in cases.items():
        assert int(from_fp64(np.array([value]), "bf16")[0]) == bits
        assert int(from_fp64(np.array([-value]), "bf16")[0]) == bits | 0x8000
    rng = np.random.default_rng(7)
    values = rng.standard_normal(20_000) * 10.0 ** rng.integers(-30, 30, 20_000)
    have = to_fp32(from_fp64(values, "bf16"), "bf16").astype(np.float64)
    unit = 2.0 ** (np.frexp(np.abs(values))[1] - 8)
    assert (np.abs(have - values) <= unit / 2).all()
