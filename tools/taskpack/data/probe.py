"""What a file holds, from its first rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from taskpack.data.formats import Format, detect, read_draft
from taskpack.data.rows import Media
from taskpack.data.sources import read_rows
from taskpack.errors import DatasetError, TaskpackError, raise_collected

PROBED_ROWS = 1000


@dataclass(frozen=True, slots=True)
class FileForm:
    """The format of a file, and the kind of media of the whole conversion."""

    path: Path
    form: Format
    media: Media

    def __str__(self) -> str:
        return f"{self.path}: {self.form.value} rows, {self.media.value}"


def probe_files(files: Sequence[Path], form: Format | None, media: Media | None) -> list[FileForm]:
    """Find out what each file holds, unless it is given.

    Raises:
        DatasetError: The rows of a file are of no known format.
    """
    forms: list[tuple[Path, Format]] = []
    errors: list[TaskpackError] = []
    for path in files:
        found, seen = _probe(path, form, with_media=media is None)
        media = media or seen
        if found is None:
            errors.append(_unknown(path))
        else:
            forms.append((path, found))
    raise_collected(errors)
    return [FileForm(path, found, media or Media.IMAGES) for path, found in forms]


def _probe(
    path: Path, form: Format | None, *, with_media: bool
) -> tuple[Format | None, Media | None]:
    if form is not None and not with_media:
        return form, None
    for raw in islice(read_rows(path), PROBED_ROWS):
        if not isinstance(raw.value, Mapping):
            continue
        form = form or detect(raw.value)
        if form is None:
            continue
        if not with_media:
            break
        draft = read_draft(raw.value, form)
        if draft.images or draft.videos:
            return form, Media.IMAGES if draft.images else Media.VIDEOS
    return form, None


def _unknown(path: Path) -> DatasetError:
    return DatasetError(
        f"the rows of {path.name} are of no format known here",
        where=str(path),
        why=f"none of the first {PROBED_ROWS} has the keys of one",
        fix="name it: --from " + ", ".join(form.value for form in Format),
    )
