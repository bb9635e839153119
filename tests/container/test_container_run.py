"""docker/run.sh on a host with made-up NPUs, through a real engine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from container_engine import REPO, Engine

HAS_DOCTOR = (
    subprocess.run(
        [REPO / ".venv" / "bin" / "taskpack", "doctor", "--help"], capture_output=True, check=False
    ).returncode
    == 0
)


def _run(
    engine: Engine, host: Path, *words: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return engine.run("bash", REPO / "docker" / "run.sh", *words, HOST_ROOT=str(host), **variables)


def _printed(engine: Engine, host: Path, *words: str | Path, **variables: str) -> str:
    done = _run(engine, host, *words, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_a_container_sees_the_npus_that_were_asked_for(
    engine: Engine, image: str, host: Path
) -> None:
    nodes = _printed(
        engine, host, "--image", image, "--npus", "2-3,5", "--user", "1000:1000",
        "bash", "-c", "ls /dev | grep -E 'davinci|devmm|hisi'; echo $NPUS_PER_NODE",
    ).split()  # fmt: skip
    assert nodes == [
        "davinci2", "davinci3", "davinci5", "davinci_manager", "devmm_svm", "hisi_hdc", "3",
    ]  # fmt: skip


def test_any_user_of_group_1000_may_open_them(engine: Engine, image: str, host: Path) -> None:
    script = "exec 3<>/dev/davinci0 4<>/dev/davinci_manager; id -u; id -G"
    printed = _printed(
        engine, host, "--image", image, "--user", "4242:4242", "bash", "-c", script
    )  # fmt: skip
    user, groups = printed.splitlines()
    assert user == "4242"
    assert "1000" in groups.split()


def test_the_driver_is_there_and_cannot_be_written(engine: Engine, image: str, host: Path) -> None:
    script = (
        "npu-smi; cat /usr/local/Ascend/driver/version.info; echo $LD_LIBRARY_PATH;"
        " touch /usr/local/Ascend/driver/version.info 2>/dev/null || echo read-only"
    )
    assert _printed(engine, host, "--image", image, "bash", "-c", script).splitlines() == [
        "npu-smi of the host",
        "Version=25.5.0",
        "/usr/local/Ascend/driver/lib64",
        "read-only",
    ]


def test_cann_of_the_image_and_a_driver_elsewhere_meet(
    engine: Engine, image: str, host: Path
) -> None:
    ascend, other = host / "usr/local/Ascend", host / "usr/local/npu"
    info = host / "etc/ascend_install.info"
    noted = info.read_text(encoding="utf-8")
    ascend.rename(other)
    info.write_text("Driver_Install_Path_Param=/usr/local/npu\n", encoding="utf-8")
    try:
        printed = _printed(
            engine, host, "--image", image,
            "bash", "-c", "echo $ASCEND_PREFIX $ASCEND_HOME_PATH $LD_LIBRARY_PATH",
        )  # fmt: skip
    finally:
        other.rename(ascend)
        info.write_text(noted, encoding="utf-8")
    assert printed == ("/usr/local/npu /usr/local/Ascend/cann-9.1.0 /usr/local/npu/driver/lib64")


@pytest.mark.parametrize(("words", "own"), [((), False), (("--shm-size", "48m"), True)])
def test_shared_memory_is_the_hosts_or_of_the_size_asked_for(
    engine: Engine, image: str, host: Path, words: tuple[str, ...], own: bool
) -> None:
    printed = _printed(
        engine, host, "--image", image, *words,
        "bash", "-c", "stat --file-system --format='%b %S' /dev/shm",
    )  # fmt: skip
    blocks, size = (int(word) for word in printed.split())
    facts = os.statvfs("/dev/shm")
    expected = 48 * 2**20 if own else facts.f_blocks * facts.f_frsize
    assert blocks * size == expected


@pytest.mark.parametrize("model", sorted(p.parent.name for p in REPO.glob("tasks/*/profile.yaml")))
def test_a_task_starts_inside_as_far_as_its_command(
    engine: Engine, image: str, host: Path, model: str
) -> None:
    (script,) = (REPO / "tasks" / model).glob("finetune_*.sh")
    launcher = ("bash", f"tasks/{model}/{script.name}", "--dry-run")
    options = ("--model", model, "--image", image, "--user", "1000:1000")
    words = shlex.split(_printed(engine, host, *options, "--", *launcher))
    assert words[0] == "torchrun"
    assert f"tasks/{model}/model.json" in words


def test_a_checkout_of_the_host_is_used_and_its_results_belong_to_the_caller(
    engine: Engine, image: str, host: Path, tmp_path: Path
) -> None:
    checkout, data = tmp_path / "my checkout", tmp_path / "data"
    (checkout / "megatron" / "core").mkdir(parents=True)
    (checkout / "megatron" / "core" / "__init__.py").touch()
    (checkout / "tasks").mkdir()
    data.mkdir()
    (checkout / "data").symlink_to(data)
    (data / "rows.json").write_text("[]", encoding="utf-8")
    (checkout / "pretrain_vlm.py").write_text("print('of the host')\n", encoding="utf-8")
    for path in (checkout, data):
        os.chown(path, 4242, 4242)
    script = "python3 pretrain_vlm.py && cat data/rows.json && mkdir save_dir && touch data/made"
    printed = _printed(
        engine, host, "--image", image, "--checkout", checkout, "--user", "4242:4242",
        "bash", "-c", script,
    )  # fmt: skip
    assert printed.splitlines() == ["of the host", "[]"]
    assert (checkout / "save_dir").stat().st_uid == 4242
    assert (data / "made").stat().st_uid == 4242


def test_the_exit_status_of_the_command_is_ours(engine: Engine, image: str, host: Path) -> None:
    assert _run(engine, host, "--image", image, "bash", "-c", "exit 42").returncode == 42


def test_the_line_of_a_dry_run_is_what_starts(engine: Engine, image: str, host: Path) -> None:
    line = _printed(engine, host, "--image", image, "--dry-run", "--", "echo", "a  b")
    assert engine.need("bash", "-c", line) == "a  b"


@pytest.mark.skipif(not HAS_DOCTOR, reason="this taskpack has no doctor yet")
def test_the_doctor_looks_at_the_container(engine: Engine, image: str, host: Path) -> None:
    done = _run(engine, host, "--image", image, "taskpack", "doctor", "--json")
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)
