"""The folder of extracted images: what is in it already stays, and nothing half-written gets in."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path

import pytest
from PIL import Image
from taskpack.cli import main
from taskpack.data.media import Extracted


def picture(red: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), (red, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def rows_with(folder: Path, name: str, red: int) -> Path:
    uri = "data:image/png;base64," + base64.b64encode(picture(red)).decode()
    path = folder / name
    path.write_text(json.dumps([{"query": "<image>?", "response": "x", "images": [uri]}]))
    return path


def convert(source: Path, out: Path, *flags: str) -> int:
    return main(["data", "convert", str(source), str(out), *flags])


def images_of(out: Path) -> list[bytes]:
    text = out.read_text()
    rows = json.loads(text) if out.suffix == ".json" else [json.loads(text)]
    return [(out.parent / name).read_bytes() for row in rows for name in row["images"]]


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_files_of_others_stay_in_the_folder(flags: tuple[str, ...], tmp_path: Path) -> None:
    mine = tmp_path / "out_media" / "holiday.jpg"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    out = tmp_path / "out.json"
    assert convert(rows_with(tmp_path, "in.json", 9), out, *flags) == 0
    assert mine.read_bytes() == b"mine"
    assert images_of(out) == [picture(9)]
    assert not (tmp_path / "out_media.partial").exists()


def test_an_array_and_lines_of_one_name_share_the_folder(tmp_path: Path) -> None:
    array, lines = tmp_path / "out.json", tmp_path / "out.jsonl"
    assert convert(rows_with(tmp_path, "a.json", 1), array) == 0
    assert convert(rows_with(tmp_path, "b.json", 2), lines) == 0
    assert images_of(array) == [picture(1)]
    assert images_of(lines) == [picture(2)]


def test_an_image_is_in_the_folder_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracted = Extracted(tmp_path / "out_media")

    def stop(_self: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            extracted.add(picture(3))
    # what is left has a name that is never published, and the next try writes the image
    left = [path.name for path in extracted.partial.rglob("*") if path.is_file()]
    assert left == [f".{os.getpid()}"]
    place = extracted.partial / extracted.add(picture(3)).relative_to(extracted.folder)
    assert place.read_bytes() == picture(3)


def test_made_up_pictures_do_not_replace_others_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "out_media" / "448x448.jpg"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    command = ["data", "mock", str(tmp_path / "out.json"), "--rows", "1"]
    assert main(command) == 5
    assert "out_media is already there" in capsys.readouterr().err
    assert mine.read_bytes() == b"mine" and not (tmp_path / "out.json").exists()
