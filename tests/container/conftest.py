"""One image for all tests, from the real Dockerfile on a stand-in for CANN's image."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_engine import REPO, Engine, missing_programs
from stand_ins import make_base, make_host, make_sources

BASE = "ascendai/cann:9.1.0-910b-ubuntu22.04-py3.11"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    missing = missing_programs()
    if missing:
        pytest.fail(
            f"{', '.join(missing)} missing: run as root after"
            " apt-get install -y --no-install-recommends buildah debootstrap podman runc"
        )
    # Unix sockets below it must have short paths, which pytest's folders do not leave room for.
    engine = Engine(Path(tempfile.mkdtemp(prefix="taskpack-")))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def base(engine: Engine) -> str:
    make_base(engine, BASE)
    return BASE


@pytest.fixture(scope="session")
def image(engine: Engine, base: str, sources: Path) -> str:
    words = ("--release", "26.1.0", "--chip", "910b", "--src", sources)
    done = engine.run("bash", REPO / "docker" / "build.sh", *words)
    assert done.returncode == 0, f"{base}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stderr.split()[-1]


@pytest.fixture(scope="session")
def host(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_host(tmp_path_factory.mktemp("host"), engine, npus=8)
