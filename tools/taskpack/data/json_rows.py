"""Rows of a JSON array or of JSON lines, one by one; a damaged row does not hide the next.

The decoder of the standard library is asked for one row at a time. It is three times as fast as
ijson's C backend, and it says at which byte a row starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from taskpack.data.text_window import TextWindow

ROW_LIMIT = 64 << 20
"""Characters of a row; a longer one is not read."""
ROW_KEYS = frozenset(
    {"conversations", "conversation", "messages", "instruction", "query", "problem", "question"}
)
"""A row has one of these; it is how the next row is found behind damage."""

_OBJECT = re.compile(r'\{\s*"')
_OPENERS = re.compile(r'(?:[\[{]\s*|"[^"]*"\s*:\s*)+')
_LONGEST_TOKEN = 16
_decode = json.JSONDecoder().raw_decode


class RawRow(NamedTuple):
    """A row as the file holds it."""

    number: int
    """Number in its file, from 0."""
    value: object
    line: int
    byte: int
    fault: str = ""
    """Why the row could not be read; its value is then None."""
    unparsed: bool = False
    """True while the value is the row's text, for another process to parse."""


class _Incomplete(Exception):
    """The row goes on behind the window."""


def parsed(raw: RawRow) -> RawRow:
    """Parse a row whose value is still its text."""
    if not raw.unparsed:
        return raw
    return _line(str(raw.value), raw.number, raw.line, raw.byte)


def array_rows(
    window: TextWindow, *, texts: bool = False, inside: bool = False
) -> Iterator[RawRow]:
    """Yield the elements of an array, numbered from 0.

    Args:
        window: Stands in front of the array's bracket.
        texts: True yields their texts, unparsed.
        inside: True when the window stands in the array already, behind one of its commas.
    """
    if not inside:
        window.skip_space()
        window.at += 1
    number = 0
    comma = True
    while True:
        char = window.skip_space()
        window.mark()
        if char == "]" and (not comma or (number == 0 and not inside)):
            window.at += 1
            yield from _nothing_behind(window, number)
            return
        if char == "," and not comma:
            window.at += 1
            comma = True
            continue
        raw = _element(window, number, comma=comma, texts=texts)
        yield raw
        number += 1
        comma = False
        if raw.fault and not raw.fault.startswith("a byte order mark"):
            if not _find_row(window):
                return
            comma = True


def _element(window: TextWindow, number: int, *, comma: bool, texts: bool) -> RawRow:
    line, byte = window.line, window.byte
    if window.text.startswith("\ufeff", window.at):
        window.at += 1
        raw = _element(window, number, comma=comma, texts=False)
        problem = raw.fault or "a byte order mark stands before the row"
        return RawRow(number, None, line, byte, problem)
    if not comma:
        found = window.text[window.at : window.at + 1]
        problem = f"{found!r} stands where a comma or the closing bracket belongs"
        if not found:
            problem = "the file ends inside the array: its closing bracket is missing"
        return RawRow(number, None, line, byte, problem)
    while True:
        try:
            value, end = _parse(window)
            if texts:
                value = window.text[window.at : end]
            window.at = end
            return RawRow(number, value, line, byte, "", texts)
        except _Incomplete:
            if len(window.text) - window.at > ROW_LIMIT:
                problem = f"the row is longer than {ROW_LIMIT >> 20} MiB"
                return RawRow(number, None, line, byte, problem)
            window.read()
        except json.JSONDecodeError as error:
            before = window.text[window.at : error.pos]
            return RawRow(number, None, line, byte, _spell(error, before, byte))
        except RecursionError:
            return RawRow(number, None, line, byte, "the row is nested too deeply")


def _parse(window: TextWindow) -> tuple[object, int]:
    try:
        value, end = _decode(window.text, window.at)
    except json.JSONDecodeError as error:
        unfinished = error.msg.startswith("Unterminated string")
        if not window.ended and (unfinished or error.pos > len(window.text) - _LONGEST_TOKEN):
            raise _Incomplete from None
        raise
    if end == len(window.text) and not window.ended:
        raise _Incomplete
    return value, end


def _find_row(window: TextWindow) -> bool:
    """Move behind damage, to the next text that reads as a row; False when there is none."""
    window.at = min(window.at + 1, len(window.text))
    while True:
        match = _OBJECT.search(window.text, window.at)
        if match is None:
            window.at = max(window.at, len(window.text) - _LONGEST_TOKEN)
            if not window.read():
                return False
            continue
        window.at = match.start()
        try:
            value, _ = _parse(window)
        except _Incomplete:
            if len(window.text) - window.at <= ROW_LIMIT:
                window.read()
                continue
        except json.JSONDecodeError:
            pass
        except RecursionError:
            # without this jump each of its levels would be tried
            openers = _OPENERS.match(window.text, window.at)
            window.at = openers.end() - 1 if openers else window.at
        else:
            if isinstance(value, dict) and ROW_KEYS & value.keys():
                return True
        window.at += 1


def _nothing_behind(window: TextWindow, number: int) -> Iterator[RawRow]:
    if window.skip_space():
        window.mark()
        problem = "text follows the closing bracket of the array"
        yield RawRow(number, None, window.line, window.byte, problem)


def line_rows(window: TextWindow, *, texts: bool = False) -> Iterator[RawRow]:
    """Yield the rows of a file that has one on each line that is not empty."""
    number = 0
    while window.skip_space():
        window.mark()
        line, byte = window.line, window.byte
        end = _line_end(window)
        if end is None:
            problem = f"the row is longer than {ROW_LIMIT >> 20} MiB"
            yield RawRow(number, None, line, byte, problem)
        else:
            text = window.text[window.at : end]
            window.at = end
            raw = RawRow(number, text, line, byte, "", unparsed=True)
            yield raw if texts else parsed(raw)
        number += 1


def _line(text: str, number: int, line: int, byte: int) -> RawRow:
    try:
        return RawRow(number, json.loads(text), line, byte)
    except json.JSONDecodeError as error:
        return RawRow(number, None, line, byte, _spell(error, text[: error.pos], byte))
    except RecursionError:
        return RawRow(number, None, line, byte, "the row is nested too deeply")


def _spell(error: json.JSONDecodeError, before: str, byte: int) -> str:
    place = byte + len(before.encode("utf-8", "surrogateescape"))
    return f"{error.msg.removesuffix(' at')} at byte {place}"


def _line_end(window: TextWindow) -> int | None:
    """Find the end of the line; None, and the window behind it, when it is too long."""
    seen = 0
    while True:
        end = window.text.find("\n", window.at + seen)
        if end >= 0:
            return end
        if window.ended:
            return len(window.text)
        seen = len(window.text) - window.at
        if seen > ROW_LIMIT:
            _skip_line(window)
            return None
        window.read()


def _skip_line(window: TextWindow) -> None:
    while (end := window.text.find("\n", window.at)) < 0:
        window.at = len(window.text)
        if not window.read():
            return
    window.at = end
