"""What a run may touch: its target and nothing else, with modes its owner can use."""

import ctypes
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import builders
import pytest
from builders import convert, run, tree

pytestmark = pytest.mark.torch

Capture = pytest.CaptureFixture[str]
_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.make_hf(tmp_path_factory.mktemp("in") / "hf")


def modes(folder: Path) -> dict[bool, set[int]]:
    """Modes of folders (True) and of files (False)."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for path in [folder, *folder.rglob("*")]:
        found[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    return found


def four_lines(text: str) -> str:
    lines = text.strip().splitlines()[-4:]
    assert [line.split(":")[0].strip() for line in lines] == ["error", "where", "why", "fix"], text
    return lines[0]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_folders_are_750_and_files_640_whatever_the_umask(
    umask: int, hf: Path, tmp_path: Path
) -> None:
    previous = os.umask(umask)
    try:
        assert convert(hf, tmp_path / "mm") == 0
        back = tmp_path / "back"
        assert (
            run("convert", "mm-to-hf", "--mm", tmp_path / "mm", "--hf-ref", hf, "--hf", back) == 0
        )
    finally:
        os.umask(previous)
    for folder in (tmp_path / "mm", tmp_path / "back"):
        assert modes(folder) == {True: {0o750}, False: {0o640}}


def as_a_plain_user() -> None:
    """Give up root's right to ignore modes."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize("nested", ["", "a/b/"])
def test_a_folder_without_write_permission_is_named(nested: str, hf: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    target = closed / f"{nested}mm"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "taskpack", "convert", "hf-to-mm"),
            *("--hf", str(hf), "--mm", str(target), *builders.LAYOUT_FLAGS),
        ],
        preexec_fn=as_a_plain_user,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 5
    assert four_lines(ended.stderr) == f"error: the folder {closed} cannot be written"
    assert list(closed.iterdir()) == []


def test_shards_without_read_permission_are_named(tmp_path: Path) -> None:
    closed = builders.make_hf(tmp_path / "hf") / "model-00002-of-00003.safetensors"
    closed.chmod(0)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "taskpack", "convert", "hf-to-mm"),
            *("--hf", str(tmp_path / "hf"), "--mm", str(tmp_path / "mm"), *builders.LAYOUT_FLAGS),
        ],
        preexec_fn=as_a_plain_user,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 5
    assert "Permission denied" in four_lines(ended.stderr) and str(closed) in ended.stderr
    assert not (tmp_path / "mm").exists() and not (tmp_path / "mm.partial").exists()


Relation = Callable[[Path], Path]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(lambda hf: hf / "mm", id="inside"),
        pytest.param(lambda hf: hf, id="the same"),
        pytest.param(lambda hf: hf.parent, id="around"),
        pytest.param(lambda hf: hf / ".." / hf.name / "deep" / "mm", id="inside by dots"),
        pytest.param(lambda hf: hf.parent / "link" / "mm", id="inside by a link"),
    ],
)
def test_a_target_and_a_source_never_lie_in_each_other(
    target: Relation, tmp_path: Path, capsys: Capture
) -> None:
    hf = builders.make_hf(tmp_path / "hf")
    (tmp_path / "link").symlink_to("hf")
    before = tree(tmp_path)
    assert convert(hf, target(hf), "--overwrite") == 2
    assert "lie in each other" in four_lines(capsys.readouterr().err)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("ending", ["partial", "replaced"])
def test_a_source_with_the_name_of_a_working_folder_survives(ending: str, tmp_path: Path) -> None:
    hf = builders.make_hf(tmp_path / f"mm.{ending}")
    before = tree(hf)
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm" / "old").write_text("old")
    convert(hf, tmp_path / "mm", "--overwrite")
    assert hf.is_dir() and tree(hf) == before


@pytest.mark.parametrize(
    ("ending", "option"),
    [("replaced", "--overwrite"), ("partial", "--resume")],
)
def test_a_folder_of_the_user_beside_the_target_is_not_cleared(
    ending: str, option: str, hf: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / f"mm.{ending}" / "thesis.tex"
    foreign.parent.mkdir()
    foreign.write_text("chapter 1")
    if option == "--overwrite":
        (tmp_path / "mm").mkdir()
        (tmp_path / "mm" / "old").write_text("old")
    convert(hf, tmp_path / "mm", option)
    assert foreign.is_file()


def test_a_target_that_is_not_empty_needs_overwrite(
    hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert convert(hf, tmp_path / "mm") == 0
    (tmp_path / "mm" / "notes.txt").write_text("of the old weights")
    before = tree(tmp_path)
    assert convert(hf, tmp_path / "mm") == 5
    assert "is not empty" in four_lines(capsys.readouterr().err)
    assert tree(tmp_path) == before
    assert convert(hf, tmp_path / "mm", "--overwrite") == 0
    assert not (tmp_path / "mm" / "notes.txt").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mm"]


@pytest.mark.parametrize("kind", ["any files", "folders of models", "training checkpoint"])
def test_overwrite_replaces_nothing_but_converted_weights(
    kind: str, hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "mm"
    assert convert(hf, tmp_path / "base") == 0
    if kind == "any files":
        target.mkdir()
        (target / "thesis.txt").write_text("mine")
    elif kind == "folders of models":
        shutil.copytree(tmp_path / "base", target / "a_model")
    else:
        shutil.copytree(tmp_path / "base" / "release", target / "iter_0000100")
        (target / "latest_checkpointed_iteration.txt").write_text("100")
        for account in target.rglob("taskpack_account.json"):
            account.unlink()
        layout = (tmp_path / "base" / "taskpack_layout.json").read_text()
        (target / "taskpack_layout.json").write_text(layout)  # the launcher copies it there
    before = tree(tmp_path)
    assert convert(hf, target, "--overwrite") == 5
    assert "holds more than converted weights" in four_lines(capsys.readouterr().err)
    assert tree(tmp_path) == before


def test_weights_that_an_interrupted_overwrite_left_are_not_removed(
    hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert convert(hf, tmp_path / "mm") == 0
    (tmp_path / "mm").rename(tmp_path / "mm.replaced")
    before = tree(tmp_path)
    for flags in ((), ("--overwrite",)):
        assert convert(hf, tmp_path / "mm", *flags) == 5
        assert "mm.replaced is in the way" in four_lines(capsys.readouterr().err)
        assert tree(tmp_path) == before


def test_a_mount_point_is_no_output(
    hf: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == volume)
    assert convert(hf, volume) == 5
    assert "is a mount point" in four_lines(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == [volume]
    assert convert(hf, volume / "mm") == 0


def test_overwrite_with_a_wrong_input_leaves_the_old_folder(hf: Path, tmp_path: Path) -> None:
    assert convert(hf, tmp_path / "mm") == 0
    before = tree(tmp_path / "mm")
    broken = builders.make_hf(tmp_path / "hf")
    (broken / "model-00002-of-00003.safetensors").unlink()
    assert convert(broken, tmp_path / "mm", "--overwrite") == 3
    assert tree(tmp_path / "mm") == before
    assert not (tmp_path / "mm.partial").exists()


@pytest.mark.parametrize("options", [("--resume",), ("--overwrite",)])
def test_two_runs_on_one_target_refuse_each_other(
    options: tuple[str, ...], hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    partial = tmp_path / "mm.partial"
    partial.mkdir()
    held = os.open(partial, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # as the other run does
    try:
        assert convert(hf, tmp_path / "mm", *options) == 5
    finally:
        os.close(held)
    assert "another run is writing" in four_lines(capsys.readouterr().err)
    assert list(partial.iterdir()) == []


@pytest.mark.parametrize("name", ["with space", "模型 ä", "$(touch x)", "-dash", "a'b\"c", "x/y/z"])
def test_any_folder_name_works(name: str, hf: Path, tmp_path: Path) -> None:
    assert convert(hf, tmp_path / name) == 0
    back = tmp_path / f"{name} back"
    assert run("convert", "mm-to-hf", "--mm", tmp_path / name, "--hf-ref", hf, "--hf", back) == 0
    original, returned = builders.read_hf(hf), builders.read_hf(back)
    assert original.keys() == returned.keys()
    assert all((original[key] == returned[key]).all() for key in original)


@pytest.mark.parametrize("target", ["mm", "./mm/", "sub/../mm", "mm//"])
def test_relative_targets_land_where_they_say(
    target: str, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    arguments = ("convert", "hf-to-mm", "--hf", os.path.relpath(hf), "--mm", target)
    assert run(*arguments, *builders.LAYOUT_FLAGS) == 0
    assert (tmp_path / "mm" / "latest_checkpointed_iteration.txt").read_text() == "release"


@pytest.mark.parametrize(
    "target",
    [
        ".",
        "..",
        "/",
    ],
)
def test_a_folder_that_cannot_be_renamed_onto_is_refused(
    target: str, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run("convert", "hf-to-mm", "--hf", hf, "--mm", target, *builders.LAYOUT_FLAGS) in (2, 5)
    four_lines(capsys.readouterr().err)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("kind", ["file", "link to a folder", "dangling link", "below a file"])
def test_a_target_that_is_no_folder_is_refused(
    kind: str, hf: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "mm"
    if kind in ("file", "below a file"):
        target.write_text("mine")
    else:
        target.symlink_to("elsewhere")
    if kind == "link to a folder":
        (tmp_path / "elsewhere").mkdir()
    before = tree(tmp_path)
    wanted = target / "deeper" if kind == "below a file" else target
    assert convert(hf, wanted, "--overwrite") == 5
    four_lines(capsys.readouterr().err)
    assert tree(tmp_path) == before


def test_linked_shards_are_read_through_their_links(tmp_path: Path) -> None:
    plain = builders.make_hf(tmp_path / "plain")
    linked = builders.make_hf(tmp_path / "linked")
    (tmp_path / "blobs").mkdir()
    for number, shard in enumerate(sorted(linked.glob("*.safetensors"))):
        shard.rename(tmp_path / "blobs" / str(number))
        shard.symlink_to(Path("..") / "blobs" / str(number))
    assert convert(plain, tmp_path / "a") == convert(linked, tmp_path / "b") == 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
