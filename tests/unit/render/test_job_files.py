"""Job descriptions for Kubernetes and Slurm: the fields that their schedulers require."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from taskpack.profile import Profile
from taskpack.render import rendered_task

Load = Callable[..., Profile]
ONE_NODE = ("platform.nodes=1", "platform.npus_per_node=16", "platform.device=A3")
NPU = "huawei.com/Ascend910"


def text(profile: Profile, name: str) -> str:
    return rendered_task(profile)[PurePosixPath(name)].decode()


def job(profile: Profile, name: str) -> Any:
    return yaml.safe_load(text(profile, f"k8s/{name}.yaml"))


def check_pod(template: Any, *, npus: int, accelerator: str) -> Any:
    """Check what both kinds of job need of a pod, and give its container."""
    assert template["metadata"]["labels"]["ring-controller.atlas"] == "ascend-910b"
    spec = template["spec"]
    assert spec["nodeSelector"] == {"host-arch": "huawei-arm", "accelerator-type": accelerator}
    rules = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [rule["topologyKey"] for rule in rules] == ["kubernetes.io/hostname"]
    (container,) = spec["containers"]
    assert container["name"] == "ascend"
    assert container["resources"] == {"limits": {NPU: npus}, "requests": {NPU: npus}}
    visible = next(e for e in container["env"] if e["name"] == "ASCEND_VISIBLE_DEVICES")
    annotation = visible["valueFrom"]["fieldRef"]["fieldPath"]
    assert annotation == f"metadata.annotations['{NPU}']"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["dshm"]["emptyDir"] == {"medium": "Memory"}
    chip = "a3" if accelerator.startswith("module-a3") else "910b"
    assert container["image"] == f"taskpack:26.1.0-{chip}-qwen2_5_vl"
    return container


@pytest.mark.parametrize(
    ("overrides", "replicas", "npus", "accelerator"),
    [
        ((), {"Master": 1, "Worker": 1}, 8, "module-910b-8"),
        (("platform.nodes=4",), {"Master": 1, "Worker": 3}, 8, "module-910b-8"),
        (ONE_NODE, {"Master": 1}, 16, "module-a3-16"),
        ((*ONE_NODE[:2],), {"Master": 1}, 16, "module-910b-16"),
    ],
)
def test_an_ascendjob_has_what_its_operator_requires(
    overrides: tuple[str, ...], replicas: dict[str, int], npus: int, accelerator: str, load: Load
) -> None:
    found = job(load(*overrides), "ascendjob")
    assert (found["apiVersion"], found["kind"]) == ("mindxdl.gitee.com/v1", "AscendJob")
    assert found["metadata"]["name"] == "qwen2-5vl-32b"
    labels = found["metadata"]["labels"]
    assert labels == {"framework": "pytorch", "ring-controller.atlas": "ascend-910b"}
    spec = found["spec"]
    assert (spec["schedulerName"], spec["successPolicy"]) == ("volcano", "AllWorkers")
    policy = spec["runPolicy"]["schedulingPolicy"]
    assert policy == {"minAvailable": sum(replicas.values()), "queue": "default"}
    specs = spec["replicaSpecs"]
    assert {role: pods["replicas"] for role, pods in specs.items()} == replicas
    for pods in specs.values():
        container = check_pod(pods["template"], npus=npus, accelerator=accelerator)
        assert container["ports"] == [{"name": "ascendjob-port", "containerPort": 2222}]
        assert {"XDL_IP", "POD_IP"} <= {entry["name"] for entry in container["env"]}


@pytest.mark.parametrize(
    ("overrides", "nodes", "npus", "accelerator"),
    [((), 2, 8, "module-910b-8"), (ONE_NODE, 1, 16, "module-a3-16")],
)
def test_a_volcano_job_has_what_its_scheduler_requires(
    overrides: tuple[str, ...], nodes: int, npus: int, accelerator: str, load: Load
) -> None:
    found = job(load(*overrides), "vcjob")
    assert (found["apiVersion"], found["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    spec = found["spec"]
    assert (spec["minAvailable"], spec["schedulerName"]) == (nodes, "volcano")
    assert spec["policies"] == [{"event": "PodEvicted", "action": "RestartJob"}]
    # the launcher reads the hosts of a task called worker, and its index
    assert spec["plugins"] == {"svc": [], "env": []}
    (task,) = spec["tasks"]
    assert (task["name"], task["replicas"]) == ("worker", nodes)
    container = check_pod(task["template"], npus=npus, accelerator=accelerator)
    assert {"name": "NPUS_PER_NODE", "value": str(npus)} in container["env"]


def test_a_slurm_job_starts_one_launcher_per_node(load: Load) -> None:
    script = text(load("platform.nodes=4"), "slurm/finetune.sbatch")
    options = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert "#SBATCH --nodes=4" in options and "#SBATCH --ntasks-per-node=1" in options
    # sbatch stops reading options at the first command
    assert script.index(options[-1]) < script.index("\nset -euo pipefail")
    assert "\n  srun --ntasks-per-node=1 --kill-on-bad-exit=1 bash " in script
    assert "SLURM_NODEID" not in script
