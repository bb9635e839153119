"""A model of a few layers, cut over two tensor parallel ranks and two stages."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from taskpack.paths import task_dir
from taskpack.profile import Profile, load_profile, profile_from_dict


@pytest.fixture
def profile() -> Profile:
    return load_profile(task_dir("qwen2.5vl-32b") / "profile.yaml")


@pytest.fixture
def tiny(profile: Profile) -> Profile:
    data: dict[str, Any] = profile.model_dump(mode="json", by_alias=True)
    data["model"] = "tiny"
    data["architecture"]["text"].update(layers=3, attention_heads=4, query_groups=2)
    data["architecture"]["text"].update(hidden_size=512, ffn_hidden_size=1024)
    data["architecture"]["vision"].update(layers=2, attention_heads=2, full_attention_layers=[1])
    data["architecture"]["vision"].update(hidden_size=160, ffn_hidden_size=320)
    data["parallel"].update(text_layers=[1, 2], vision_layers=[2, 0])
    data["generate"].update(text_layers=None, vision_layers=None)
    data["platform"].update(nodes=1, npus_per_node=4)
    data = yaml.safe_load(yaml.safe_dump(data))
    return profile_from_dict(data, where="tiny")
