"""What we render is what each release ships for each size, apart from the differences below."""

from __future__ import annotations

from pathlib import Path

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import load_profile
from taskpack.profile.releases import releases_of
from taskpack.profile.shipped import example_names, load_example
from taskpack.render.upstream import ABSENT, differences, example_of, generation_differences

TASKS = Path(__file__).parents[3] / "tasks"
SIZES = {
    "qwen2_5_vl": ("qwen2.5vl-3b", "qwen2.5vl-7b", "qwen2.5vl-32b", "qwen2.5vl-72b"),
    "qwen2_vl": ("qwen2vl-2b", "qwen2vl-7b", "qwen2vl-72b"),
}
CELLS = [
    (model, release)
    for family, models in SIZES.items()
    for model in models
    for release in releases_of(family)
]

# Layouts that we changed on purpose, or that older releases shipped: set back before comparing.
AS_SHIPPED = {
    # 4 and 6 layers at the ends balance the vision encoder and the head, and the adapter is the
    # user's choice
    "qwen2.5vl-32b": ("parallel.text_layers=[1, 9, 9, 9, 9, 9, 9, 9]", "tuning.mode=full"),
    # since 2.2.0 two stages are shipped, which is what the profile has
    ("qwen2.5vl-7b", "2.1.0"): (
        "parallel.text_layers=[1, 10, 10, 7]",
        "parallel.vision_layers=[32, 0, 0, 0]",
        "batch.accumulation=96",
    ),
    # dropped upstream: recompute in 2.2.0, swapping in 2.3.0
    ("qwen2.5vl-72b", "2.1.0"): ("train.recompute=full", "extra.flags.--swap-attention=true"),
    ("qwen2.5vl-72b", "2.2.0"): ("extra.flags.--swap-attention=true",),
}

# name: what it becomes, and why. Nothing else may differ.
WANTED = {
    # our own places, and the port of the guides
    "--mm-data": "tasks/{model}/data.json",
    "--mm-model": "tasks/{model}/model.json",
    "MASTER_PORT": "29501",
    # the last save of the guides instead of one at the very end
    "--save-interval": "5000",
    # the profile states it; it is the trainer's default
    "--min-lr": "0.0",
    # without it a missing tracker file means random weights
    "--exit-on-missing-checkpoint": None,
    # one stage sends nothing to another, so there are no lengths to announce (2.1.0, 3B and 2B)
    "--variable-seq-lengths": ABSENT,
    # read by no code of these models in any release
    "image_encoder.vision_encoder.llm_hidden_size": ABSENT,
    # what the trainer takes when the key is absent
    "text_decoder.use_remove_padding": ABSENT,
    "text_decoder.kv_channels": ABSENT,
    "patch.bridge_patch": ABSENT,
    "image_encoder.vision_encoder.use_vit_dp": ABSENT,
    # the encoder and the projector for shared sequences are rendered when cp is above 1
    "image_encoder.vision_encoder.model_id": "qwen2vit",
    "image_encoder.vision_projector.context_parallel_size": ABSENT,
}
# read by the RL code of 2.1.0 and 2.2.0 alone, and shipped for some sizes there and not there
UNREAD = {"video_token_id"}


def overrides(model: str, release: str) -> list[str]:
    return [
        f"release={release}",
        *AS_SHIPPED.get(model, ()),
        *AS_SHIPPED.get((model, release), ()),
    ]


@pytest.mark.parametrize(("model", "release"), CELLS)
def test_a_task_differs_from_the_shipped_example_only_on_purpose(model: str, release: str) -> None:
    profile = load_profile(TASKS / model / "profile.yaml", overrides(model, release))
    unwanted = [
        difference
        for difference in differences(profile)
        if difference.name not in UNREAD
        and (
            difference.name not in WANTED or difference.rendered != _wanted(difference.name, model)
        )
    ]
    assert not unwanted


def _wanted(name: str, model: str) -> object:
    value = WANTED[name]
    return value.format(model=model) if isinstance(value, str) else value


def test_every_wanted_difference_exists() -> None:
    found = {
        difference.name
        for model, release in CELLS
        for difference in differences(
            load_profile(TASKS / model / "profile.yaml", overrides(model, release))
        )
    }
    assert found == set(WANTED) | UNREAD


def test_every_shipped_size_is_compared() -> None:
    compared = {}
    for family, models in SIZES.items():
        profiles = [load_profile(TASKS / model / "profile.yaml") for model in models]
        compared[family] = {example_of(profile) for profile in profiles}
    for family, names in compared.items():
        assert names == {name for name in example_names(family) if "-" not in name}


@pytest.mark.parametrize(
    "override",
    [
        "train.lr=2e-5",
        "train.seed=43",
        "data.image_max_pixels=262143",
        "parallel.text_layers=[11, 17]",
        "architecture.text.norm_epsilon=1e-5",
        "platform.env.HCCL_CONNECT_TIMEOUT=1201",
        "extra.flags.--exit-signal-handler=true",
        "extra.model_json.text_decoder.attention_dropout=0.1",
        "extra.data_json.dataloader_param.shuffle=false",
    ],
)
def test_a_value_that_drifts_is_found(override: str) -> None:
    path = TASKS / "qwen2.5vl-7b" / "profile.yaml"
    before = differences(load_profile(path))
    after = differences(load_profile(path, [override]))
    assert len([each for each in after if each not in before]) >= 1


@pytest.mark.parametrize("release", ["2.2.0", "2.3.0", "26.0.0", "26.1.0"])
def test_fsdp2_for_72b_is_the_shipped_variant(release: str) -> None:
    profile = load_profile(
        TASKS / "qwen2.5vl-72b" / "profile.yaml",
        [
            f"release={release}",
            "parallel.fsdp2=true",
            "parallel.tp=1",
            "parallel.text_layers=[80]",
            "parallel.vision_layers=[32]",
            "batch.accumulation=1",
            "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2",
            "platform.env.HCCL_CONNECT_TIMEOUT=7200",
            "platform.env.MULTI_STREAM_MEMORY_REUSE=2",
            "platform.timeout_minutes=60",
        ],
    )
    assert example_of(profile) == "72b-fsdp2"
    wanted = {
        **{name: _wanted(name, profile.model) for name in WANTED},
        "--fsdp2-config-path": "tasks/qwen2.5vl-72b/fsdp2_config.yaml",
        # any value but 1 will do, and a setting that is stated can be seen
        "CUDA_DEVICE_MAX_CONNECTIONS": "2",
        # the shipped lists are those of eight stages, which one stage ignores
        "text_decoder.pipeline_num_layers": [80],
        "image_encoder.vision_encoder.pipeline_num_layers": [32],
    }
    for difference in differences(profile):
        assert difference.name in UNREAD or difference.rendered == wanted[difference.name]


# The shipped inference and evaluation: what we leave out or do on purpose.
GENERATION = {
    # our own places, and a folder of its own for the weights that answer
    "--mm-model": "tasks/{model}/{kind}.json",
    "--load": "ckpt/mm_path/{title}-generate",
    "MASTER_PORT": "29501",
    "--exit-on-missing-checkpoint": None,
    "--variable-seq-lengths": ABSENT,
    # the vocabulary of the model, and the kernels that inference uses as well
    "--vocab-size": "{vocabulary}",
    "--use-fused-rmsnorm": None,
    "--use-fused-swiglu": None,
    # settings of the task, whatever runs
    "CPU_AFFINITY_CONF": "2",
    "ASCEND_LAUNCH_BLOCKING": "0",
    "PYTORCH_NPU_ALLOC_CONF": ABSENT,
    "MULTI_STREAM_MEMORY_REUSE": "2",
    "tokenizer.from_pretrained": "ckpt/hf_path/{title}",
    # one stage has no lists, and the trainer ignores those that are shipped
    "image_encoder.vision_encoder.pipeline_num_layers": [32],
    "text_decoder.pipeline_num_layers": [28],
    # read by no code of these models, or what is taken when the key is absent
    "image_encoder.vision_encoder.llm_hidden_size": ABSENT,
    "image_processer_path": ABSENT,
    "text_decoder.tensor_model_parallel_size": ABSENT,
    "text_decoder.pipeline_model_parallel_size": ABSENT,
    # shipped for one size as they are here, and a little otherwise for another
    "generation_config.temperature": 0.1,
    "use_custom_prompt": ABSENT,
}
# shipped as 1.05 for one size and as 1.0 for another of the same family
OF_THE_FAMILY = {"generation_config.repetition_penalty"}
GENERATION_CELLS = [
    (model, release, kind)
    for model, release in CELLS
    for kind in ("inference", "evaluate")
    if release
    in example_names("qwen2_vl" if model.startswith("qwen2vl") else "qwen2_5_vl").get(
        f"{model.rpartition('-')[2]}-{kind}", ()
    )
]


@pytest.mark.parametrize(("model", "release", "kind"), GENERATION_CELLS)
def test_generation_differs_from_the_shipped_example_only_on_purpose(
    model: str, release: str, kind: str
) -> None:
    profile = load_profile(TASKS / model / "profile.yaml", [f"release={release}"])
    places = {
        "model": model,
        "kind": kind,
        "title": profile.title,
        "vocabulary": profile.architecture.text.vocab_size,
    }
    for difference in generation_differences(profile, kind):
        if difference.name in OF_THE_FAMILY:
            continue
        assert difference.name in GENERATION, difference
        wanted = GENERATION[difference.name]
        filled = wanted.format(**places) if isinstance(wanted, str) else wanted
        assert difference.rendered == filled, difference


def test_every_wanted_difference_of_generation_exists() -> None:
    found = {
        difference.name
        for model, release, kind in GENERATION_CELLS
        for difference in generation_differences(
            load_profile(TASKS / model / "profile.yaml", [f"release={release}"]), kind
        )
    }
    assert len(GENERATION_CELLS) == 36
    assert found == set(GENERATION) | OF_THE_FAMILY


def test_a_size_that_no_release_ships_is_said_to_be_so() -> None:
    profile = load_profile(
        TASKS / "qwen2.5vl-3b" / "profile.yaml",
        [
            "architecture.text.layers=35",
            "parallel.text_layers=[35]",
            "generate.text_layers=[35]",
        ],
    )
    with pytest.raises(ProfileError) as caught:
        differences(profile)
    assert "ships no example with 35 text layers of 2048" in str(caught.value)


def test_an_example_that_a_release_lacks_names_those_that_have_it() -> None:
    with pytest.raises(ProfileError) as caught:
        load_example("qwen2_5_vl", "72b-fsdp2", "2.1.0")
    assert "fix:   use release 2.2.0, 2.3.0, 26.0.0, 26.1.0" in str(caught.value)
