"""Rows for a rehearsal: questions of ours about photos that scikit-image ships, or the user's."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taskpack.data import convert_llava
from taskpack.data.sources import read_values
from taskpack.errors import DatasetError, HostError

ROWS_FILE = Path(__file__).with_name("sample_rows.json")
PHOTOS = "photos"


def sample_text() -> Iterator[str]:
    """Yield every sentence of the sample rows."""
    for row in json.loads(ROWS_FILE.read_text(encoding="utf-8")):
        for turn in row["conversations"]:
            yield turn["value"]


def write_sample_rows(folder: Path) -> Path:
    """Write the sample rows in LLaVA form, with their photos beside them.

    Args:
        folder: The data folder of a checkout.

    Returns:
        The file of rows.

    Raises:
        HostError: scikit-image, or a photo of it, is not installed.
    """
    rows = json.loads(ROWS_FILE.read_text(encoding="utf-8"))
    source = _photo_folder()
    (folder / PHOTOS).mkdir(parents=True, exist_ok=True)
    for row in rows:
        names = row.get("image", [])
        for name in [names] if isinstance(names, str) else names:
            if not (source / name).is_file():
                raise _no_photos(f"the photo {name} is not in this scikit-image", source)
            shutil.copyfile(source / name, folder / PHOTOS / name)
        if names:
            placed = [f"{PHOTOS}/{n}" for n in ([names] if isinstance(names, str) else names)]
            row["image"] = placed[0] if isinstance(names, str) else placed
    path = folder / "llava_rows.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def _photo_folder() -> Path:
    """Find the photos by path: importing the package would load scipy for nothing."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise _no_photos("scikit-image is not installed", Path("python environment"))
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _no_photos(what: str, where: Path) -> HostError:
    return HostError(
        what,
        where=str(where),
        why="the sample rows ask about its photos",
        fix="pip install 'scikit-image>=0.22', or rehearse with rows of your own: --data FILE",
    )


def take_user_rows(file: Path, target: Path, *, media_root: Path | None) -> str:
    """Bring the user's rows, of either form, into the scratch checkout.

    Args:
        file: A JSON array of LLaVA or of MindSpeed-MM rows.
        target: The file to write.
        media_root: Folder of the images; by default the file's own.

    Returns:
        What was done, in one line.

    Raises:
        DatasetError: The file is of neither form, or rows of it are bad.
    """
    root = (media_root or file.parent).resolve()
    first = next(read_values(file), None)
    if isinstance(first, dict) and "conversations" in first:
        account = convert_llava([file], target, media_root=root, overwrite=True)
        _make_absolute(target, target, root)
        return account.summary()
    if isinstance(first, dict) and "messages" in first:
        count = _make_absolute(file, target, root)
        return f"{count} rows, already of MindSpeed-MM's form"
    raise DatasetError(
        f"the first row of {file.name} has neither 'messages' nor 'conversations'",
        where=f"{file} row 0",
        why="these keys tell MindSpeed-MM rows from LLaVA rows",
        fix="convert the file with `taskpack data convert` first",
    )


def _make_absolute(file: Path, target: Path, root: Path) -> int:
    """Point image paths at their real place, since the scratch checkout has another data.dir."""
    rows: list[Any] = list(read_values(file))
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("images"), list):
            row["images"] = [str(root / str(name)) for name in row["images"]]
    target.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return len(rows)
