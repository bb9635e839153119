"""What stands where an Ascend host, CANN's image, MindSpeed-MM and torch's wheels would be."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from container_engine import Engine

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")

# Vendor scripts read variables that are not set, and let commands fail.
CANN_SCRIPT = """\
false
export ASCEND_HOME_PATH=/usr/local/Ascend/cann-9.1.0$NOT_SET_ANYWHERE
export PYTHONPATH=/usr/local/Ascend/cann/python/site-packages:$PYTHONPATH
"""
ATB_SCRIPT = "export ATB_HOME_PATH=/usr/local/Ascend/nnal/atb/latest\n"

SOURCES = {
    "MindSpeed-MM/pretrain_vlm.py": "import megatron.core, mindspeed\n",
    "MindSpeed-MM/mindspeed_mm/__init__.py": "",
    "MindSpeed-MM/pyproject.toml": (
        '[project]\nname = "mindspeed-mm"\nversion = "0.1"\ndependencies = ["torch==2.7.1"]\n'
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[tool.setuptools]\npackages = ["mindspeed_mm"]\n'
    ),
    "Megatron-LM/megatron/core/__init__.py": "",
    "MindSpeed/mindspeed/__init__.py": "",
    "MindSpeed/pyproject.toml": (
        '[project]\nname = "mindspeed"\nversion = "0.12.1"\n'
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[tool.setuptools]\npackages = ["mindspeed"]\n'
    ),
}

TORCHRUN = """\
import sys


def main():
    print("torchrun", *sys.argv[1:])
"""


def _write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _write_wheel(folder: Path, package: str, version: str, files: dict[str, str]) -> None:
    info = f"{package}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)


def make_sources(root: Path) -> Path:
    """Lay out what `build.sh --src` takes: checkouts without history, and torch's wheel."""
    _write_files(root, SOURCES)
    local = "+cpu" if os.uname().machine == "x86_64" else ""
    commands = {
        f"torch-2.7.1{local}.dist-info/entry_points.txt": (
            "[console_scripts]\ntorchrun = torch.run:main\n"
        )
    }
    _write_wheel(
        root / "wheels",
        "torch",
        f"2.7.1{local}",
        {"torch/__init__.py": "", "torch/run.py": TORCHRUN, **commands},
    )
    return root


def make_base(engine: Engine, name: str) -> None:
    """Make an image like CANN's: Debian with Python, a made-up CANN tree, not root."""
    tree = engine.root / "rootfs"
    engine.need(
        "debootstrap",
        "--variant=minbase",
        "--include=ca-certificates,python3,python3-venv",
        "bookworm",
        tree,
    )
    ascend = tree / "usr" / "local" / "Ascend"
    _write_files(ascend, {"cann/set_env.sh": CANN_SCRIPT, "nnal/atb/set_env.sh": ATB_SCRIPT})
    if AUTHORITIES.is_file():
        # a package index behind a site's own authority
        (tree / AUTHORITIES.relative_to("/")).write_bytes(AUTHORITIES.read_bytes())
    container = engine.need("buildah", "from", "scratch")
    engine.need("buildah", "add", "-q", container, tree, "/")
    engine.need(
        "buildah", "run", "--isolation", "chroot", container, "--",
        "useradd", "--uid", "1000", "--create-home", "HwHiAiUser",
    )  # fmt: skip
    settings = ("--user", "HwHiAiUser", "--env", f"PIP_CERT={AUTHORITIES}")
    engine.need("buildah", "config", *settings, container)
    engine.need("buildah", "commit", "-q", "--rm", container, "localhost/base:bookworm")
    engine.need("buildah", "tag", "localhost/base:bookworm", name)


def make_host(root: Path, engine: Engine, *, npus: int) -> Path:
    """Lay out an Ascend host: device nodes that answer, a driver, npu-smi."""
    _write_files(
        root,
        {
            "usr/local/Ascend/driver/version.info": "Version=25.5.0\n",
            "usr/local/Ascend/driver/lib64/libascend_hal.so": "",
            "usr/local/bin/npu-smi": "#!/bin/sh\necho npu-smi of the host\n",
            "usr/local/dcmi/libdcmi.so": "",
            "etc/ascend_install.info": "Driver_Install_Path_Param=/usr/local/Ascend\n",
        },
    )
    (root / "usr/local/bin/npu-smi").chmod(0o755)
    (root / "dev").mkdir()
    names = [f"davinci{number}" for number in range(npus)]
    for name in [*names, "davinci_manager", "devmm_svm", "hisi_hdc"]:
        node = root / "dev" / name
        engine.need("mknod", "--mode=660", node, "c", "1", "3")
        os.chown(node, 1000, 1000)
    return root
