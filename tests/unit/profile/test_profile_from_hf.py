"""Architectures from config.json, and the layouts chosen for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main
from taskpack.errors import ProfileError
from taskpack.parallel import PipelineSplit
from taskpack.profile import Profile, load_profile
from taskpack.profile.from_hf import balance, choose_layout, read_architecture
from taskpack.render.new_profile import write_profile

# hidden, ffn, heads, query groups, layers, vocabulary, vision ffn, tied: as published
SIZES = {
    "3B": (2048, 11008, 16, 2, 36, 151936, 3420, True),
    "7B": (3584, 18944, 28, 4, 28, 152064, 3420, False),
    "32B": (5120, 27648, 40, 8, 64, 152064, 3456, False),
    "72B": (8192, 29568, 64, 8, 80, 152064, 3456, False),
}


def config(size: str) -> dict[str, Any]:
    hidden, ffn, heads, groups, layers, vocabulary, vision_ffn, tied = SIZES[size]
    return {
        "model_type": "qwen2_5_vl",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "max_position_embeddings": 128000,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "tie_word_embeddings": tied,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": vision_ffn,
            "num_heads": 16,
            "in_chans": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
        },
    }


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Give the form that newer versions of transformers write."""
    outer = {key: flat[key] for key in ("model_type", "vision_config", "tie_word_embeddings")}
    text = {key: value for key, value in flat.items() if key not in outer}
    rope = text.pop("rope_scaling")
    text["rope_parameters"] = {**rope, "rope_theta": text.pop("rope_theta")}
    return {**outer, "text_config": {**text, "model_type": "qwen2_5_vl_text"}}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def write(data: object, name: str = "Qwen2.5-VL-32B-Instruct") -> Path:
        made = tmp_path / "hf" / name
        made.mkdir(parents=True, exist_ok=True)
        text = data if isinstance(data, str) else json.dumps(data)
        (made / "config.json").write_text(text, encoding="utf-8")
        return made

    return write


def fault(folder: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        read_architecture(folder)
    return str(caught.value)


@pytest.mark.parametrize("form", [dict, nested])
def test_both_forms_of_config_give_the_32b_architecture(
    form: Callable[[dict[str, Any]], dict[str, Any]],
    folder: Callable[..., Path],
    load: Callable[..., Profile],
) -> None:
    assert read_architecture(folder(form(config("32B")))) == load().architecture


@pytest.mark.parametrize("form", [dict, nested])
def test_a_tied_head_is_seen(
    form: Callable[[dict[str, Any]], dict[str, Any]], folder: Callable[..., Path]
) -> None:
    assert read_architecture(folder(form(config("3B")))).text.tied


def test_another_family_is_refused_by_name(folder: Callable[..., Path]) -> None:
    made = folder({**config("7B"), "model_type": "qwen3_moe"})
    assert fault(made) == (
        "error: models of type 'qwen3_moe' are not supported\n"
        f"  where: {made / 'config.json'} (model_type)\n"
        "  why:   a profile needs a family whose weights taskpack can map\n"
        "  fix:   use a model of type qwen2_5_vl or qwen2_vl"
    )


def test_every_missing_key_is_named(folder: Callable[..., Path]) -> None:
    data = config("7B")
    del data["num_key_value_heads"], data["rope_scaling"], data["vision_config"]["hidden_size"]
    whats = [line for line in fault(folder(data)).splitlines() if line.startswith("error")]
    assert sorted(whats) == [
        "error: config.json lacks num_key_value_heads",
        "error: config.json lacks rope_scaling.mrope_section",
        "error: config.json lacks vision_config.hidden_size",
    ]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("{", "error: config.json is not JSON: "),
        ("[]", "error: config.json holds no object"),
        ({**config("7B"), "hidden_size": "wide"}, "error: text.hidden_size cannot be 'wide'"),
        (
            {**config("7B"), "vision_config": 5},
            "error: config.json lacks vision_config.hidden_size",
        ),
    ],
)
def test_a_damaged_config_is_an_error_of_the_user(
    data: object, what: str, folder: Callable[..., Path]
) -> None:
    assert fault(folder(data)).startswith(what)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    assert fault(tmp_path).startswith("error: the folder holds no config.json\n")


@pytest.mark.parametrize(
    ("size", "nodes", "tp", "stages"),
    [("3B", 1, 1, 1), ("7B", 1, 1, 2), ("32B", 2, 2, 8), ("72B", 4, 4, 8)],
)
def test_each_published_size_gets_the_smallest_layout_that_fits(
    size: str, nodes: int, tp: int, stages: int, folder: Callable[..., Path]
) -> None:
    layout = choose_layout(read_architecture(folder(config(size))))
    assert (layout.nodes, layout.tp, len(layout.text_layers)) == (nodes, tp, stages)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8, 16])
def test_balanced_stages_hold_every_layer_and_at_least_one(
    stages: int, folder: Callable[..., Path]
) -> None:
    split = PipelineSplit.parse(balance(read_architecture(folder(config("32B"))), stages))
    assert (split.total, split.pp_size) == (64, stages)
    assert min(split.chunks[0]) >= 1


def test_ends_that_carry_vision_embedding_and_head_get_fewer_layers(
    folder: Callable[..., Path],
) -> None:
    counts = balance(read_architecture(folder(config("32B"))), 8)
    assert counts[0] < counts[-1] < max(counts)


def test_too_few_nodes_are_refused(folder: Callable[..., Path]) -> None:
    shape = read_architecture(folder(config("72B")))
    with pytest.raises(ProfileError) as caught:
        choose_layout(shape, nodes=1)
    assert str(caught.value) == (
        "error: no layout fits on 1 node\n"
        "  where: taskpack profile from-hf\n"
        "  why:   weights, gradients and optimizer may take 42 GB of each NPU, tp must divide the "
        "heads, and 8 stages are the most\n"
        "  fix:   use more nodes"
    )


def test_a_tp_that_divides_no_heads_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(ProfileError, match="no layout with tp 3 fits on up to 64 nodes"):
        choose_layout(read_architecture(folder(config("7B"))), tp=3)


def test_the_written_32b_profile_is_the_hand_written_one_but_for_its_layers(
    folder: Callable[..., Path], load: Callable[..., Profile], tmp_path: Path
) -> None:
    written = write_profile(folder(config("32B")), "qwen2.5vl-32b", tmp_path / "tasks")
    layers = list(written.parallel.text_layers)
    answering = list(written.generate.text_layers or ())
    ours = load(
        f"parallel.text_layers={layers}",
        f"generate.text_layers={answering}",
        f"hf.dir={written.hf.dir}",
    )
    assert written == ours
    assert load_profile(tmp_path / "tasks" / "qwen2.5vl-32b" / "profile.yaml") == written


@pytest.mark.parametrize("size", SIZES)
def test_every_line_of_a_written_profile_has_the_hand_written_comment(
    size: str, folder: Callable[..., Path], tmp_path: Path, profile_text: str
) -> None:
    write_profile(folder(config(size)), "new", tmp_path)
    written = (tmp_path / "new" / "profile.yaml").read_text(encoding="utf-8")

    def keys_and_comments(text: str) -> list[tuple[str, str]]:
        lines = [line for line in text.splitlines()[5:] if "NPUs" not in line]
        return [(line.partition(":")[0], line.partition("  # ")[2]) for line in lines]

    assert keys_and_comments(written) == keys_and_comments(profile_text)


@pytest.mark.parametrize(("size", "stages"), [("3B", 1), ("7B", 1), ("32B", 2), ("72B", 4)])
def test_answering_takes_the_stages_that_hold_the_weights(
    size: str, stages: int, folder: Callable[..., Path], tmp_path: Path
) -> None:
    generate = write_profile(folder(config(size)), "new", tmp_path).generate
    assert len(generate.text_layers or ()) == len(generate.vision_layers or ()) == stages


def qwen2_vl() -> dict[str, Any]:
    """Give the config.json of Qwen2-VL-7B as published: its vision part names things otherwise."""
    vision = {
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "num_heads": 16,
        "in_chans": 3,
        "hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "spatial_patch_size": 14,
        "temporal_patch_size": 2,
    }
    return {
        **config("7B"),
        "model_type": "qwen2_vl",
        "max_position_embeddings": 32768,
        "vision_config": vision,
    }


def test_qwen2_vl_is_read_as_its_task_has_it(folder: Callable[..., Path], tmp_path: Path) -> None:
    written = write_profile(folder(qwen2_vl()), "new", tmp_path)
    ours = load_profile(Path(__file__).parents[3] / "tasks" / "qwen2vl-7b" / "profile.yaml")
    assert written.architecture == ours.architecture
    assert (written.family, written.release) == ("qwen2_vl", "26.0.0")
    assert written.launcher == "finetune_qwen2_vl.sh"


@pytest.mark.parametrize("ratio", ["4", None, True])
def test_a_ratio_that_is_no_number_is_refused(ratio: Any, folder: Callable[..., Path]) -> None:
    damaged = qwen2_vl()
    damaged["vision_config"]["mlp_ratio"] = ratio
    assert "vision.ffn_hidden_size cannot be" in fault(folder(damaged))


def test_an_existing_task_is_never_replaced(
    folder: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_profile(folder(config("7B")), "seven", tmp_path / "tasks")
    target = tmp_path / "tasks" / "seven" / "profile.yaml"
    before = target.read_bytes()
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "from-hf", str(folder(config("3B"))), "--name", "seven"]) == 2
    assert capsys.readouterr().err == (
        "error: the task 'seven' exists\n"
        f"  where: {target}\n"
        "  why:   a profile is written by hand and never replaced\n"
        "  fix:   choose another --name, or remove the folder first\n"
    )
    assert target.read_bytes() == before


@pytest.mark.parametrize("name", ["../up", "Big", "a b", ""])
def test_a_bad_name_writes_nothing(name: str, folder: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="model cannot be"):
        write_profile(folder(config("7B")), name, tmp_path / "tasks")
    assert not (tmp_path / "tasks").exists()
    assert not (tmp_path / "up").exists()


def test_the_command_writes_and_shows_the_plan(
    folder: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_profile(folder(config("3B")), "three", tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    argv = [
        "profile",
        "from-hf",
        str(folder(config("7B"))),
        "--name",
        "seven",
        "--tp",
        "4",
        "--json",
    ]
    assert main(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model"], shown["tp"], shown["pp"], shown["world_size"]) == ("seven", 4, 1, 8)
    assert main(["render", "seven"]) == 0
