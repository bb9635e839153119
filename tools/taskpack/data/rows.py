"""One row of any format to one MindSpeed-MM row, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from taskpack.data.draft import Draft, Row
from taskpack.data.findings import Finding
from taskpack.data.formats import Format, read_draft
from taskpack.data.json_rows import RawRow
from taskpack.data.markers import is_plain, marker_fault, place_optional, repair
from taskpack.data.media import MediaPlace
from taskpack.data.trainer import IMAGE_MARKER, VIDEO_MARKER, alternates

_ID_TYPES = (str, int, type(None))


class Media(Enum):
    """What the rows of a file show; the trainer cannot mix the kinds in a batch."""

    IMAGES = "images"
    VIDEOS = "videos"


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one file, collecting every fault of a row instead of the first."""

    file: str
    """Name shown in findings."""
    form: Format
    place: MediaPlace
    media: Media = Media.IMAGES
    fix: bool = False
    """True repairs markers where only one way is right."""
    repaired: str = ""
    """What was repaired in the last row."""

    def read(self, raw: RawRow) -> Row | list[Finding]:
        """Convert one row as the file holds it."""
        self.repaired = ""
        if raw.fault:
            return self._findings(raw, None, [("broken_json", raw.fault)])
        value = raw.value
        if not isinstance(value, dict):
            found = f"is a {type(value).__name__}, not an object"
            return self._findings(raw, None, [("wrong_type", found)])
        raw_id = value.get("id")
        draft = read_draft(value, self.form)
        if type(raw_id) not in _ID_TYPES:
            draft.fault("wrong_type", f"id is {str(raw_id)[:80]!r}, not text or a whole number")
        self._judge_media(draft)
        _judge_order(draft)
        self._judge_markers(draft)
        images = self._paths(draft, draft.images, "image") if draft.images else []
        videos = self._paths(draft, draft.videos, "video") if draft.videos else []
        row_id = None if raw_id is None else str(raw_id)
        if draft.faults:
            return self._findings(raw, row_id, draft.faults)
        return Row(row_id, images, draft.turns, videos if self.media is Media.VIDEOS else None)

    def unwritable(self, raw: RawRow, error: UnicodeEncodeError) -> list[Finding]:
        """Say that a row's text is no Unicode text."""
        text = f"holds {error.object[error.start : error.end][:4]!r}, which is not UTF-8 text"
        name = raw.value.get("id") if isinstance(raw.value, dict) else None
        return self._findings(raw, None if name is None else str(name), [("not_utf8", text)])

    def _findings(
        self, raw: RawRow, row_id: str | None, faults: Sequence[tuple[str, str]]
    ) -> list[Finding]:
        shown = None if row_id is None else _printable(row_id)
        return [
            Finding(raw.number, shown, kind, _printable(text), self.file, raw.line, raw.byte)
            for kind, text in faults
        ]

    def _judge_media(self, draft: Draft) -> None:
        unwanted = draft.videos if self.media is Media.IMAGES else draft.images
        if unwanted:
            has, of = ("a video", "images") if self.media is Media.IMAGES else ("images", "videos")
            draft.fault("unsupported", f"has {has}; this is a file of {of}, one kind per run")
            unwanted.clear()

    def _judge_markers(self, draft: Draft) -> None:
        if draft.markers_optional:
            place_optional(draft)
        if draft.faults or (not draft.videos and is_plain(draft.turns, len(draft.images))):
            return
        for marker, media in (
            (IMAGE_MARKER, len(draft.images)),
            (VIDEO_MARKER, len(draft.videos)),
        ):
            if self.fix:
                self.repaired = repair(draft.turns, marker, media) or self.repaired
            problem = marker_fault(draft.turns, marker, media)
            if problem:
                draft.fault("marker_mismatch", problem)

    def _paths(self, draft: Draft, sources: list[object], kind: str) -> list[str]:
        paths = [self.place.path(source, kind, draft) for source in sources]
        return [path for path in paths if path is not None]


def _judge_order(draft: Draft) -> None:
    """Name the order of turns that the trainer would drop; a system turn may come first."""
    roles = [role for role, _ in draft.turns]
    if alternates(roles) or (roles[:1] == ["system"] and alternates(roles[1:])):
        return
    if any(fault.kind in ("bad_turns", "wrong_type") for fault in draft.faults):
        return
    order = " ".join(roles[:12]) + (" ..." if len(roles) > 12 else "") or "nothing"
    draft.fault("bad_turns", f"turns are {order}; they must be user assistant, repeated")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
