"""Options of a conversion: ranks, untied heads, element types, resuming."""

from pathlib import Path

import addressed
import golden_inputs
import pytest
import torch
from addressed import layout
from safetensors.torch import load_file, save_file
from taskpack.errors import CheckpointError, HostError
from taskpack.weights import Options, hf_to_mm, mm_to_hf, verify_account, verify_equal
from taskpack.weights.sides import rank_folders, rank_grid

pytestmark = pytest.mark.torch

WANTED = layout(2, [1, 3], [4, 0])


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_inputs.make_hf(tmp_path_factory.mktemp("in") / "hf")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_any_partition_of_the_ranks_makes_the_whole_run(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "whole", layout=WANTED)
    joined: dict[str, bytes] = {}
    for host, ranks in enumerate(([0], [1, 2], [3])):
        part = tmp_path / f"host{host}"
        options = Options(ranks=rank_folders(WANTED, ranks))
        hf_to_mm(hf, part, layout=WANTED, options=options)
        for path, content in tree(part).items():
            assert joined.setdefault(path, content) == content
    assert joined == tree(tmp_path / "whole")


def test_global_ranks_follow_megatrons_order_of_groups() -> None:
    # 16 ranks, TP 2, PP 2: four copies; ranks 0-7 are stage 0, 8-15 stage 1
    assert rank_folders(WANTED, range(8), world_size=16) == {"mp_rank_00_000", "mp_rank_01_000"}
    assert rank_folders(WANTED, [15], world_size=16) == {"mp_rank_01_001"}
    assert rank_grid(WANTED, pp_ranks=[1]) == {"mp_rank_00_001", "mp_rank_01_001"}
    with pytest.raises(ValueError, match="rank 16 is none of the 16 ranks"):
        rank_folders(WANTED, [16], world_size=16)


def test_casting_rounds_once_and_is_said(hf: Path, tmp_path: Path) -> None:
    account = hf_to_mm(hf, tmp_path / "fp32", layout=WANTED, options=Options(dtype="fp32"))
    assert (account.dtype, account.cast_from) == ("fp32", "bf16")
    mm_to_hf(tmp_path / "fp32", hf, tmp_path / "fp16", options=Options(dtype="fp16"))
    mm_to_hf(tmp_path / "fp32", hf, tmp_path / "bf16", options=Options(dtype="bf16"))
    original = addressed.hf_tensors(hf)
    for name, value in addressed.hf_tensors(tmp_path / "fp16").items():
        assert torch.equal(value, original[name].to(torch.float16)), name
    for name, value in addressed.hf_tensors(tmp_path / "bf16").items():
        assert torch.equal(value, original[name]), name


def test_fp32_is_rounded_to_bf16_as_torch_rounds(tmp_path: Path) -> None:
    fp32 = tmp_path / "fp32"
    golden_inputs.make_hf(fp32, shards=1)
    (file,) = fp32.glob("*.safetensors")
    tensors = {
        name: torch.randn(value.shape, generator=torch.Generator().manual_seed(7))
        for name, value in load_file(str(file)).items()
    }
    save_file(tensors, str(file))
    hf_to_mm(fp32, tmp_path / "mm", layout=WANTED, options=Options(dtype="bf16"))
    mm_to_hf(tmp_path / "mm", fp32, tmp_path / "back")
    for name, value in addressed.hf_tensors(tmp_path / "back").items():
        assert torch.equal(value, tensors[name].to(torch.bfloat16)), name


def test_a_trained_head_is_an_error_unless_it_is_untied(tmp_path: Path) -> None:
    tied = golden_inputs.make_hf(tmp_path / "tied", tied=True)
    hf_to_mm(tied, tmp_path / "mm", layout=layout(1, [1, 3], [4, 0]))
    last = tmp_path / "mm" / "release" / "mp_rank_00_001" / "model_optim_rng.pt"
    content = torch.load(last, weights_only=True)
    content["model"]["text_decoder.output_layer.weight"] += 1
    torch.save(content, last)
    with pytest.raises(CheckpointError, match="copies of the same rows differ"):
        mm_to_hf(tmp_path / "mm", tied, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    mm_to_hf(tmp_path / "mm", tied, tmp_path / "hf", options=Options(untie=True))
    head = addressed.hf_tensors(tmp_path / "hf")["lm_head.weight"]
    assert torch.equal(head, content["model"]["text_decoder.output_layer.weight"])
    assert '"tie_word_embeddings": false' in (tmp_path / "hf" / "config.json").read_text()


def test_an_equal_head_stays_tied(tmp_path: Path) -> None:
    tied = golden_inputs.make_hf(tmp_path / "tied", tied=True)
    hf_to_mm(tied, tmp_path / "mm", layout=layout(1, [1, 3], [4, 0]))
    mm_to_hf(tmp_path / "mm", tied, tmp_path / "hf", options=Options(untie=True))
    assert "lm_head.weight" not in addressed.hf_tensors(tmp_path / "hf")


def test_an_account_finds_one_changed_byte(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=WANTED)
    assert verify_account(tmp_path / "mm")["tensors"] == 154
    assert verify_equal(hf, tmp_path / "mm")["equal"]
    path = tmp_path / "mm" / "release" / "mp_rank_01_001" / "model_optim_rng.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="1 tensors have changed"):
        verify_account(tmp_path / "mm")
    with pytest.raises(Exception, match="1 tensors differ"):
        verify_equal(hf, tmp_path / "mm")


def test_a_finished_folder_is_not_replaced_unasked(hf: Path, tmp_path: Path) -> None:
    hf_to_mm(hf, tmp_path / "mm", layout=WANTED)
    before = tree(tmp_path / "mm")
    with pytest.raises(HostError, match="is not empty"):
        hf_to_mm(hf, tmp_path / "mm", layout=layout(1, [4], [4]))
    assert tree(tmp_path / "mm") == before
    hf_to_mm(hf, tmp_path / "mm", layout=layout(1, [4], [4]), options=Options(overwrite=True))
    assert (tmp_path / "mm" / "release" / "mp_rank_00" / "model_optim_rng.pt").is_file()
    assert not list(tmp_path.glob("*.replaced")) and not list(tmp_path.glob("*.partial"))
