"""Megatron checkpoints with something wrong around their tensors: folders, tracker, layout."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import builders
import pytest
from builders import Refusals

pytestmark = pytest.mark.torch

TRACKER, LAYOUT = "latest_checkpointed_iteration.txt", "taskpack_layout.json"
RANK = Path("release") / "mp_rank_01_001"
FILE = RANK / "model_optim_rng.pt"
Breaks = Callable[[Path], object]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `hf`, `mm` and `adapter`, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    assert builders.convert(builders.make_hf(folder / "hf"), folder / "mm") == 0
    builders.make_adapter(folder / "adapter", folder / "mm")
    return folder


@pytest.fixture
def mm(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "mm", tmp_path / "mm"))


def export(made: Path, mm: Path, out: Path, *flags: str) -> tuple[object, ...]:
    return "convert", "mm-to-hf", "--mm", mm, "--hf-ref", made / "hf", "--hf", out, *flags


def written(name: str | Path, content: bytes) -> Breaks:
    return lambda mm: (mm / name).write_bytes(content)


def removed(name: str | Path) -> Breaks:
    def breaks(mm: Path) -> None:
        path = mm / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return breaks


def folder_for_file(name: str | Path) -> Breaks:
    def breaks(mm: Path) -> None:
        (mm / name).unlink()
        (mm / name).mkdir()

    return breaks


def file_for_folder(name: str | Path) -> Breaks:
    def breaks(mm: Path) -> None:
        shutil.rmtree(mm / name)
        (mm / name).write_text("")

    return breaks


def emptied(name: str | Path) -> Breaks:
    def breaks(mm: Path) -> None:
        shutil.rmtree(mm / name)
        (mm / name).mkdir()

    return breaks


def copied(name: str) -> Breaks:
    return lambda mm: shutil.copytree(mm / RANK, mm / "release" / name)


FOLDERS = [
    (removed("."), "there is no checkpoint folder"),
    (removed(FILE), "a rank file is missing"),
    (removed(RANK), "the rank folders form no full grid; missing: mp_rank_01_001"),
    (copied("mp_rank_02_001"), "missing: mp_rank_02_000"),
    (copied("mp_rank_00"), "too many: mp_rank_00"),
    (copied("mp_rank_00_000_000"), "the rank folders form no full grid"),
    (copied("mp_rank_00_000_000_000"), "has another form than mp_rank_TT[_PPP][_EEE]"),
    (emptied("release"), "there are no rank folders"),
    (file_for_folder("release"), "there is no folder release"),
    (emptied("."), f"the folder has no {TRACKER}"),
    (removed(TRACKER), f"the folder has no {TRACKER}"),
    (folder_for_file(TRACKER), f"the folder has no {TRACKER}"),
    (written(TRACKER, b""), "the tracker says ''"),
    (written(TRACKER, b"\xff\x00zz"), "the tracker says"),
    (written(TRACKER, b"-1"), "the tracker says '-1'"),
    (written(TRACKER, "\u00b2".encode()), "the tracker says"),
    (written(TRACKER, b"77"), "the tracker names '77', but there is no folder iter_0000077"),
    (written(TRACKER, b"9" * 6000), "the tracker"),
    (file_for_folder(RANK), "rank file"),
    (folder_for_file(FILE), "rank file"),
]


@pytest.mark.parametrize(("breaks", "message"), FOLDERS)
def test_a_checkpoint_folder_that_is_incomplete_is_refused(
    breaks: Breaks, message: str, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    breaks(mm)
    out = tmp_path / "out"
    assert message in Refusals(capsys)(3, *export(made, mm, out), out=out)


def layout(**changes: object) -> Breaks:
    def breaks(mm: Path) -> None:
        record = json.loads((mm / LAYOUT).read_text())
        (mm / LAYOUT).write_text(json.dumps(record | changes))

    return breaks


LAYOUTS = [
    (written(LAYOUT, b"{{"), "the layout file is damaged"),
    (written(LAYOUT, b""), "the layout file is damaged"),
    (written(LAYOUT, b"[]"), "the layout file is damaged"),
    (written(LAYOUT, b"{}"), "the layout file is damaged"),
    (written(LAYOUT, b"\xff\xfe"), "the layout file is damaged"),
    (layout(text_layers="ab"), "the layout file is damaged"),
    (layout(text_layers=4), "the layout file is damaged"),
    (layout(text_layers=[-1, 5]), "the layout file is damaged"),
    (layout(format=9), "the layout has format 9"),
    (layout(tp=1, vision_tp=1), "cut for TP 2 x PP 2, not for TP 1 x PP 2"),
    (layout(text_layers=[2, 2]), "tensors are missing"),
    (layout(vision_layers=[2, 2]), "tensors are missing"),
    (layout(canonical=True), "tensors are missing"),
    (layout(modules=["vision"]), "tensors are not of this model"),
    (written(LAYOUT, b"[" * 200_000), "damaged"),
    *((layout(tp=tp), "the layout file is damaged") for tp in ("2", [2], 2.0, 0, -2)),
]


@pytest.mark.parametrize(("breaks", "message"), LAYOUTS)
def test_a_layout_file_that_does_not_fit_is_refused(
    breaks: Breaks, message: str, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    breaks(mm)
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *export(made, mm, out), out=out)
    assert message in said and str(mm) in said


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dims": {}}, 3),
        ({"dims": None}, 3),
        ({"family": "nope"}, 2),
        ({"family": "qwen2_vl"}, 3),
        ({"tied": True}, 3),
        *(
            (changes, 3)
            for changes in (
                {"dims": [1]},
                {"dims": {"V": 40}},
                {"dims": {"V": -1}},
                {"family": ["qwen2_5_vl"]},
            )
        ),
    ],
)
def test_a_layout_file_with_another_model_is_not_resplit(
    changes: dict[str, object], code: int, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    layout(**changes)(mm)
    out = tmp_path / "out"
    flags = ("--to-tp", "1", "--to-llm-layers", "[4]", "--to-vit-layers", "[4]")
    Refusals(capsys)(code, "convert", "resplit", "--mm", mm, "--out", out, *flags, out=out)


@pytest.mark.parametrize("with_layout_file", [True, False])
def test_a_checkpoint_of_another_layout_than_typed_is_refused(
    with_layout_file: bool, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    if not with_layout_file:
        (mm / LAYOUT).unlink()
    out = tmp_path / "out"
    flags = ("--tp", "2", "--llm-layers", "[2,2]", "--vit-layers", "[4,0]")
    said = Refusals(capsys)(3, *export(made, mm, out, *flags), out=out)
    assert "the checkpoint has text [1, 3], not [2, 2]" in said
    flags = ("--tp", "1", "--llm-layers", "[1,3]", "--vit-layers", "[4,0]")
    said = Refusals(capsys)(3, *export(made, mm, out, *flags), out=out)
    assert "cut for TP 2 x PP 2, not for TP 1 x PP 2" in said


@pytest.mark.parametrize("iteration", ["5", "0"])
def test_an_iteration_that_is_absent_is_refused_with_those_present(
    iteration: str, made: Path, mm: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *export(made, mm, out, "--iteration", iteration), out=out)
    assert f"there is no folder iter_000000{iteration}" in said
    assert "choose with --iteration: release" in said


def test_a_hugging_face_folder_is_no_checkpoint(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *export(made, made / "hf", out), out=out)
    assert "it holds Hugging Face weights" in said and "taskpack convert hf-to-mm" in said


def test_an_adapter_is_no_checkpoint(made: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    said = Refusals(capsys)(3, *export(made, made / "adapter", out), out=out)
    assert "adapter tensors" in said and "taskpack lora merge" in said


ACCOUNTS = [
    (removed(FILE), 3),
    (written(RANK / "taskpack_account.json", b"{"), 3),
    (written(RANK / "taskpack_account.json", b"[]"), 3),
    (written(RANK / "taskpack_account.json", b'{"file": "x", "content": {"model": 1}}'), 3),
    *(
        (breaks, 1)
        for breaks in (removed(RANK), removed(RANK / "taskpack_account.json"), removed(TRACKER))
    ),
]


@pytest.mark.parametrize(("breaks", "code"), ACCOUNTS)
def test_verify_finds_what_a_folder_lacks(
    breaks: Breaks, code: int, mm: Path, capsys: Capture
) -> None:
    breaks(mm)
    Refusals(capsys)(code, "verify", mm)


@pytest.mark.parametrize("command", [("verify",), ("inspect",)])
def test_an_absent_folder_is_named(
    command: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    code = 2 if command == ("verify",) else 3
    assert str(tmp_path / "none") in Refusals(capsys)(code, *command, tmp_path / "none")
