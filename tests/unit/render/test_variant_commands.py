"""The variants of tasks/README.md: every command works, and does what its comment says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from taskpack.cli import main

README = Path(__file__).parents[3] / "tasks" / "README.md"


@cache
def commands() -> dict[str, list[str]]:
    """Give the words of each `taskpack` command of the README, by its folder or its verb."""
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    found = {}
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("taskpack "):
                words = shlex.split(line)[1:]
                name = words[0]
                if "--out" in words:
                    name = Path(words[words.index("--out") + 1]).name
                found[name] = words
    return found


class Rendered:
    """A variant in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = json.loads((folder / "model.json").read_text())
        self.data = json.loads((folder / "data.json").read_text())
        self.script = next(folder.glob("finetune_*.sh")).read_text()

    def argument(self, flag: str) -> str | None:
        """Give the words behind a flag; None when the script does not pass it."""
        line = re.search(rf"^ +{flag}( .*)?$", self.script, re.MULTILINE)
        return line and (line[1] or "").strip()


@pytest.fixture
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rendered]:
    words = list(commands()[request.param])
    words[words.index("--out") + 1] = str(tmp_path / "out")
    assert main(words) == 0
    yield Rendered(tmp_path / "out")


@pytest.mark.parametrize("variant", ["canonical"], indirect=True)
def test_canonical_lora_is_canonical_in_both_parts(variant: Rendered) -> None:
    assert variant.model["text_decoder"]["canonical_model"] is True
    vision = variant.model["image_encoder"]["vision_encoder"]
    assert (vision["canonical_model"], vision["model_id"]) == (True, "qwen2vit")
    assert variant.argument("--lora-target-modules") == (
        "q_proj k_proj v_proj linear_proj gate_proj up_proj linear_fc2"
    )
    assert '"canonical": true,' in variant.script


@pytest.mark.parametrize("variant", ["vision"], indirect=True)
def test_training_vision_recomputes_it_in_model_json(variant: Rendered) -> None:
    encoder = variant.model["image_encoder"]
    assert encoder["vision_encoder"]["freeze"] is False
    assert encoder["vision_projector"]["freeze"] is False
    for part in (encoder["vision_encoder"], variant.model["text_decoder"]):
        assert part["recompute_granularity"] == "full"
    assert "--recompute" not in variant.script


@pytest.mark.parametrize(
    ("variant", "token", "images", "videos"),
    [("video", 151656, None, "videos"), ("text", 151655, None, None)],
    indirect=["variant"],
)
def test_media_set_the_token_and_the_columns(
    variant: Rendered, token: int, images: str | None, videos: str | None
) -> None:
    assert variant.model["img_context_token_id"] == token
    columns = variant.data["dataset_param"]["attr"]
    assert (columns["images"], columns["videos"]) == (images, videos)


@pytest.mark.parametrize("variant", ["long"], indirect=True)
def test_long_sequences_share_them_in_a_ring(variant: Rendered) -> None:
    assert "readonly TP=8 PP=4 CP=4" in variant.script
    assert variant.argument("--context-parallel-algo") == "megatron_cp_algo"
    text = variant.model["text_decoder"]
    assert (text["seq_length"], text["max_position_embeddings"]) == (131072, 131072)
    assert text["recompute_granularity"] == "full"
    encoder = variant.model["image_encoder"]
    assert encoder["vision_encoder"]["model_id"] == "qwen2_5_vit"
    assert encoder["vision_projector"]["context_parallel_size"] == 1
    limits = variant.data["dataset_param"]["preprocess_parameters"]
    assert (limits["video_max_pixels"], limits["video_fps"], limits["video_maxlen"]) == (
        262144,
        60.0,
        768,
    )


@pytest.mark.parametrize("variant", ["virtual"], indirect=True)
def test_virtual_stages_set_flag_and_variable(variant: Rendered) -> None:
    assert variant.argument("--virtual-pipeline-model-parallel-size") == "2"
    assert 'export VP_SIZE="${VP_SIZE:-2}"' in variant.script
    assert "refuse_lora 'LoRA with 2 virtual stages'" in variant.script


@pytest.mark.parametrize("variant", ["fsdp2"], indirect=True)
def test_fsdp2_comes_with_its_settings_file(variant: Rendered) -> None:
    assert variant.argument("--fsdp2-config-path") == '"$TASK/fsdp2_config.yaml"'
    assert variant.argument("--ckpt-format") == "torch_dist"
    assert variant.argument("--use-distributed-optimizer") is None
    text = (variant.folder / "fsdp2_config.yaml").read_text()
    assert "recompute_modules: ['text_decoder.decoder.layers.{*}']" in text


@pytest.mark.parametrize("variant", ["online"], indirect=True)
def test_online_loading_starts_from_the_hf_folder(variant: Rendered) -> None:
    assert variant.model["patch"] == {"bridge_patch": True}
    assert ': "${LOAD_PATH:=ckpt/hf_path/Qwen2.5-VL-3B-Instruct}"' in variant.script
    assert variant.argument("--exit-on-missing-checkpoint") is None


@pytest.mark.parametrize("variant", ["resume"], indirect=True)
def test_resuming_drops_the_four_flags(variant: Rendered) -> None:
    assert not re.search(r"--no-(load|save)-(optim|rng)", variant.script)
    assert variant.argument("--load") == '"$RESUME_PATH"'


@pytest.mark.parametrize("variant", ["extra"], indirect=True)
def test_extra_flags_and_keys_are_passed_on(variant: Rendered) -> None:
    assert variant.argument("--exit-signal-handler") == ""
    assert variant.argument("--tensorboard-dir") == "runs"
    assert variant.data["dataset_param"]["basic_parameters"]["preprocess_on_fly"] is True


@pytest.mark.parametrize("variant", ["older"], indirect=True)
def test_an_older_release_is_named_in_the_script(variant: Rendered) -> None:
    assert "with MindSpeed-MM 2.3.0." in variant.script


def test_every_command_of_the_readme_is_tested_here() -> None:
    tested = set(re.findall(r'\["(\w+)"\], indirect', Path(__file__).read_text(encoding="utf-8")))
    assert set(commands()) == {*tested, "video", "text", "diff-upstream"}
    assert main(commands()["diff-upstream"]) == 0
