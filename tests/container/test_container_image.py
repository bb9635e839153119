"""The image that docker/build.sh makes of the real Dockerfile."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from container_engine import REPO, Engine
from taskpack.profile import load_release


def _in_image(engine: Engine, image: str, *command: str) -> str:
    return engine.need("docker", "run", "--rm", image, *command)


def _inspect(engine: Engine, image: str) -> dict[str, object]:
    (facts,) = json.loads(engine.need("podman", "inspect", "--type", "image", image))
    config: dict[str, object] = facts["Config"]
    return config


def test_it_is_named_by_release_chip_and_family(image: str) -> None:
    assert image == "taskpack:26.1.0-910b-qwen2_5_vl"


def test_it_starts_as_user_1000_of_group_1000(engine: Engine, image: str) -> None:
    assert _in_image(engine, image, "bash", "-c", "id -u; id -g; pwd; echo $HOME").split() == [
        "1000",
        "1000",
        "/workspace/MindSpeed-MM",
        "/home/taskpack",
    ]


def test_its_user_may_write_to_the_checkout_and_the_home(engine: Engine, image: str) -> None:
    _in_image(engine, image, "bash", "-c", "mkdir logs && touch logs/a ~/b")


def test_its_labels_say_what_it_is(engine: Engine, image: str) -> None:
    labels = _inspect(engine, image)["Labels"]
    assert isinstance(labels, dict)
    assert labels["org.opencontainers.image.version"] == "26.1.0-910b"
    assert labels["org.opencontainers.image.base.name"] == (
        "ascendai/cann:9.1.0-910b-ubuntu22.04-py3.11"
    )
    assert labels["taskpack.mindspeed"] == load_release("26.1.0").mindspeed["qwen2_5_vl"]
    assert re.fullmatch(r"[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


def test_the_environment_of_cann_and_atb_is_there(engine: Engine, image: str) -> None:
    printed = _in_image(engine, image, "bash", "-c", "echo $ASCEND_HOME_PATH $ATB_HOME_PATH")
    assert printed == "/usr/local/Ascend/cann-9.1.0 /usr/local/Ascend/nnal/atb/latest"


def test_training_finds_its_packages(engine: Engine, image: str) -> None:
    _in_image(engine, image, "python3", "pretrain_vlm.py")
    found = _in_image(
        engine,
        image,
        "python3",
        "-c",
        "import megatron.core, mindspeed, mindspeed_mm, safetensors, pyarrow, taskpack\n"
        "from importlib.metadata import version\n"
        "print(megatron.core.__file__, mindspeed.__file__, taskpack.__file__)\n"
        "print(version('torch'), version('torch_npu'))",
    ).split()
    assert found[0] == "/workspace/MindSpeed-MM/megatron/core/__init__.py"
    assert found[1] == "/workspace/MindSpeed/mindspeed/__init__.py"
    assert found[2].startswith("/opt/venv/")
    # torch is a stand-in, its NPU bridge the real one; both are what the release asks for
    assert found[3].removesuffix("+cpu") == load_release("26.1.0").pins["torch"]
    assert found[4] == load_release("26.1.0").pins["torch_npu_wheel"]


def test_its_tools_work_and_its_tasks_are_what_the_profiles_render_to(
    engine: Engine, image: str
) -> None:
    assert _in_image(engine, image, "taskpack", "--version").startswith("taskpack ")
    _in_image(engine, image, "taskpack", "render", "--all", "--check")
    _in_image(engine, image, "taskpack", "plan", "qwen2.5vl-32b")


def test_its_health_check_holds_without_an_npu(engine: Engine, image: str) -> None:
    name = "healthy"
    engine.need("docker", "run", "--detach", "--name", name, image, "sleep", "60")
    try:
        engine.need("podman", "healthcheck", "run", name)
        engine.need("podman", "exec", "--user", "0", name, "rm", "/opt/venv/bin/taskpack")
        assert engine.run("podman", "healthcheck", "run", name).returncode != 0
    finally:
        engine.need("podman", "rm", "--force", "--time", "0", name)


def test_it_carries_no_wheels_no_sources_twice_and_no_history(engine: Engine, image: str) -> None:
    listed = _in_image(
        engine,
        image,
        "bash",
        "-c",
        "ls /opt /workspace; find / -xdev \\( -name '*.whl' -o -name .git \\) -not -path '/proc/*'"
        " -not -path '*/ensurepip/*' -not -path '/usr/share/python-wheels/*' 2>/dev/null || true",
    ).split()
    assert listed == ["/opt:", "taskpack", "venv", "/workspace:", "MindSpeed", "MindSpeed-MM"]


def test_an_address_with_a_password_never_reaches_a_build(engine: Engine) -> None:
    done = engine.run(
        "bash", REPO / "docker" / "build.sh", "--release", "26.1.0", "--chip", "910b",
        PIP_INDEX_URL="https://me:secret@index.example/simple",
    )  # fmt: skip
    assert done.returncode == 2
    assert "secret" not in done.stderr


def test_sources_at_another_revision_stop_the_build(
    engine: Engine, base: str, sources: Path, tmp_path: Path
) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    mindspeed = tmp_path / "sources" / "MindSpeed"
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "other"),
    ):
        engine.need("git", "-C", mindspeed, *words)
    words = ("--release", "26.1.0", "--chip", "910b", "--src", tmp_path / "sources")
    # the stand-in has no git, which the build then installs
    done = engine.run("bash", REPO / "docker" / "build.sh", *words, "--tag", "refused:1")
    assert done.returncode != 0, base
    assert "error: MindSpeed is at " in done.stdout + done.stderr
    assert "the release takes 69f41000" in done.stdout + done.stderr
    assert engine.run("podman", "image", "exists", "refused:1").returncode == 1
