"""A run that is killed, stopped or out of space: nothing final, and `--resume` gives the same."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import builders
import pytest

pytestmark = pytest.mark.torch

# Stands where `taskpack` stands and sends itself a signal at its n-th write.
_STOPPER = """
import os, signal, sys
from taskpack.cli import main
number, at = int(sys.argv[1]), int(sys.argv[2])
# a background job starts with SIGINT ignored, a terminal does not
signal.signal(signal.SIGINT, signal.default_int_handler)
write, writes = os.pwrite, 0
def counted(*arguments):
    global writes
    writes += 1
    if writes == at:
        os.kill(os.getpid(), number)
    return write(*arguments)
os.pwrite = counted
code = main(sys.argv[3:])
print(writes, file=sys.stderr)
sys.exit(code)
"""


def arguments(hf: Path, mm: Path, *more: str) -> list[str]:
    command = ["convert", "hf-to-mm", "--hf", str(hf), "--mm", str(mm), "--threads", "2"]
    return [*command, *builders.LAYOUT_FLAGS, *more]


def stopped(number: int, at: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _STOPPER, str(number), str(at), *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.make_hf(tmp_path_factory.mktemp("in") / "hf")


@pytest.fixture(scope="module")
def whole(hf: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], int]:
    """The output of a run that nothing disturbs, and the number of its writes."""
    target = tmp_path_factory.mktemp("whole") / "mm"
    done = stopped(signal.SIGKILL, 0, *arguments(hf, target))
    assert done.returncode == 0, done.stderr
    return builders.tree(target), int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("number", range(25))
def test_a_killed_run_resumes_to_the_same_bytes(
    number: int, hf: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    expected, writes = whole
    at = 1 + number * (writes - 1) // 24  # from the first write to the last
    target = tmp_path / "mm"
    killed = stopped(signal.SIGKILL, at, *arguments(hf, target))
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    assert builders.run(*arguments(hf, target, "--resume")) == 0
    assert builders.tree(target) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["mm"]


@pytest.mark.parametrize("first", [20, 90, 150])
def test_a_run_that_is_killed_again_while_resuming_still_ends_the_same(
    first: int, hf: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    target = tmp_path / "mm"
    assert stopped(signal.SIGKILL, first, *arguments(hf, target)).returncode == -9
    assert stopped(signal.SIGKILL, 12, *arguments(hf, target, "--resume")).returncode == -9
    assert builders.run(*arguments(hf, target, "--resume")) == 0
    assert builders.tree(target) == whole[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_has_its_exit_code_and_resumes(
    number: int, code: int, hf: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    target = tmp_path / "mm"
    ended = stopped(number, whole[1] // 2, *arguments(hf, target))
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
    assert not target.exists()
    assert builders.run(*arguments(hf, target, "--resume")) == 0
    assert builders.tree(target) == whole[0]


def test_a_byte_that_was_lost_in_a_crash_is_copied_again(
    hf: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    target = tmp_path / "mm"
    stopped(signal.SIGKILL, whole[1] - 8, *arguments(hf, target))
    for path in (tmp_path / "mm.partial").rglob("*.pt"):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 2000] = bytes(2000)
        path.write_bytes(content)
    assert builders.run(*arguments(hf, target, "--resume")) == 0
    assert builders.tree(target) == whole[0]


def test_a_full_disk_is_said_and_resumes_after_freeing(
    hf: Path,
    whole: tuple[dict[str, bytes], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write, left = os.pwrite, [whole[1] // 2]

    def until_full(*given: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*given)  # type: ignore[arg-type]

    target = tmp_path / "mm"
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", until_full)
        assert builders.run(*arguments(hf, target)) == 5
    shown = capsys.readouterr().err
    assert "No space left" in shown and "  fix:" in shown
    assert not target.exists()
    assert builders.run(*arguments(hf, target, "--resume")) == 0
    assert builders.tree(target) == whole[0]


def test_resuming_with_other_weights_is_refused(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mm"
    stopped(signal.SIGKILL, 90, *arguments(hf, target))
    before = builders.tree(tmp_path / "mm.partial")
    other = builders.make_hf(tmp_path / "other")
    assert builders.run(*arguments(other, target, "--resume")) == 2
    assert "the interrupted run had other inputs" in capsys.readouterr().err
    assert builders.tree(tmp_path / "mm.partial") == before


def test_an_interrupted_run_is_neither_resumed_nor_replaced_unasked(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mm"
    stopped(signal.SIGKILL, 90, *arguments(hf, target))
    before = builders.tree(tmp_path / "mm.partial")
    assert builders.run(*arguments(hf, target)) == 5
    assert "--resume to go on" in capsys.readouterr().err
    assert builders.tree(tmp_path / "mm.partial") == before


def test_an_overwriting_run_that_is_killed_leaves_the_old_folder(hf: Path, tmp_path: Path) -> None:
    target = tmp_path / "mm"
    assert builders.run(*arguments(hf, target)) == 0
    before = builders.tree(target)
    other = builders.make_hf(tmp_path / "other", vocab=80)
    killed = stopped(signal.SIGKILL, 90, *arguments(other, target, "--overwrite"))
    assert killed.returncode == -signal.SIGKILL
    assert builders.tree(target) == before
