"""The stand-in torchrun, as a program that starts small scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "taskpack.rehearse.torchrun"]
TWO_NODES = ["--nproc_per_node", "8", "--nnodes", "2", "--node_rank", "0"]
SIZES = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "8"]


def script(folder: Path, body: str) -> str:
    path = folder / "trainer.py"
    path.write_text(f"import os, sys, time\nrank = os.environ['RANK']\n{body}\n")
    return str(path)


def run(*words: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TASKPACK_REHEARSE_PROCESSES": str(processes)}
    return subprocess.run(
        [*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60
    )


def test_two_processes_stand_for_sixteen(tmp_path: Path) -> None:
    body = (
        # one write a line: two processes share the pipe
        "sizes = os.environ['WORLD_SIZE'], os.environ['TASKPACK_CLUSTER_SIZE']\n"
        "sys.stdout.write(' '.join(map(str, (rank, *sizes, sys.argv[1:]))) + chr(10))"
    )
    done = run(*TWO_NODES, script(tmp_path, body), *SIZES)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} 2 16 {SIZES}" for rank in range(2)]


def test_a_cluster_that_holds_no_whole_copy_is_refused(tmp_path: Path) -> None:
    done = run("--nproc_per_node", "8", "--nnodes", "1", script(tmp_path, "print('ran')"), *SIZES)
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert done.stderr.splitlines()[0] == "error: 1 x 8 processes cannot hold copies of 16"


def test_other_nodes_have_nothing_to_start(tmp_path: Path) -> None:
    words = ["--nproc_per_node", "8", "--nnodes", "2", "--node_rank", "1"]
    assert run(*words, script(tmp_path, ""), *SIZES).returncode == 5


def test_the_exit_code_of_a_failing_process_ends_the_run(tmp_path: Path) -> None:
    body = "sys.exit(3) if rank == '1' else time.sleep(60)"
    started = time.monotonic()
    assert run(*TWO_NODES, script(tmp_path, body), *SIZES).returncode == 3
    assert time.monotonic() - started < 30


def test_a_killed_process_ends_the_run_with_its_signal(tmp_path: Path) -> None:
    body = "os.kill(os.getpid(), 9) if rank == '0' else time.sleep(60)"
    assert run(*TWO_NODES, script(tmp_path, body), *SIZES).returncode == 128 + signal.SIGKILL


def test_a_stop_reaches_every_process(tmp_path: Path) -> None:
    body = "open(f'{rank}.pid', 'w').write(str(os.getpid())); time.sleep(60)"
    with subprocess.Popen(
        [*COMMAND, *TWO_NODES, script(tmp_path, body), *SIZES],
        cwd=tmp_path,
        env={**os.environ, "TASKPACK_REHEARSE_PROCESSES": "2"},
    ) as process:
        files = [tmp_path / f"{rank}.pid" for rank in range(2)]
        deadline = time.monotonic() + 30
        while not all(f.is_file() and f.read_text() for f in files):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
