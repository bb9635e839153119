"""Damaged and hostile files: bounded, named, and no row around them lost."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main
from taskpack.data import json_rows
from taskpack.data.sources import read_rows


def line(name: str, answer: str = "Hello.") -> bytes:
    talk = [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": answer}]
    return json.dumps({"id": name, "conversations": talk}).encode()


def convert(source: Path, *options: str) -> int:
    return main(["data", "convert", str(source), str(source.parent / "out.json"), *options])


def dropped(source: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], dict[str, Any]]:
    assert convert(source, "--on-bad", "drop", "--json", "--from", "llava") == 0
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    rows = json.loads((source.parent / "out.json").read_text(encoding="utf-8"))
    return [item["id"] for item in rows], account


def array(*rows: bytes) -> bytes:
    return b"[\n" + b",\n".join(rows) + b"\n]"


DAMAGE = {
    "bare word": b'{"id": "x", "conversations": [oops]}',
    "missing quote": b'{"id": "x, "conversations": []}',
    "raw line break": b'{"id": "x", "conversations": [{"from": "human", "value": "a\nb"}]}',
    "NUL byte": b'{"id": "x\0", "conversations": []}',
    "half a row": b'{"id": "x", "conversations": [{"from": "human"',
    "deep nesting": b'{"id": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "mark": b"\xef\xbb\xbf" + line("x"),
    "bad bytes": b'{"id": "\xff\xfe", "conversations": []}',
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("lines", [False, True])
def test_the_rows_around_damage_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, lines: bool
) -> None:
    rows = [line("a"), line("b"), DAMAGE[name], line("c"), line("d")]
    source = tmp_path / "in"
    source.write_bytes(b"\n".join(rows) if lines else array(*rows))
    names, account = dropped(source, capsys)
    assert names == ["a", "b", "c", "d"]
    assert account["rows"] == account["written"] + sum(account["dropped"].values())
    assert account["findings"][0]["row"] == 2


def test_a_row_closed_twice_is_kept_and_the_bracket_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_bytes(array(line("a"), line("b") + b"}", line("c")))
    names, account = dropped(tmp_path / "in", capsys)
    assert names == ["a", "b", "c"]
    problem = "'}' stands where a comma or the closing bracket belongs"
    assert [finding["message"] for finding in account["findings"]] == [problem]


def test_damage_names_byte_line_and_the_last_good_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [line(f"{number}", "é" * 400) for number in range(4000)]
    rows[3000] = b'{"id": "x", "conversations": [oops]}'
    source = tmp_path / "in.json"
    source.write_bytes(array(*rows))
    byte = source.read_bytes().index(b'{"id": "x"')
    assert convert(source, "--from", "llava") == 4
    place = f"line 3002, row 3000 at byte {byte}; the last good row is 2999 (id 2999)"
    assert capsys.readouterr().err.splitlines() == [
        f"error: in.json is not valid JSON: Expecting value at byte {byte + 30}",
        f"  where: {source} {place}",
        "  why:   the trainer reads strict JSON; a file that was cut off ends like this",
        "  fix:   write the file again, or save what is readable: data convert --on-bad drop",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_workers_name_the_same_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line(f"{number}") for number in range(1500)]
    rows[1200] = b"{oops"
    messages = []
    for content in (array(*rows), b"\n".join(rows)):
        for workers in "02":
            (tmp_path / "in.json").write_bytes(content)
            assert convert(tmp_path / "in.json", "--workers", workers, "--from", "llava") == 4
            messages.append(capsys.readouterr().err.splitlines()[1].partition("row")[2])
    assert messages[0] == messages[1]
    assert messages[2] == messages[3]
    assert all("1200" in text and "the last good row is 1199" in text for text in messages)


@pytest.mark.parametrize("end", [b"", b",", b"\n", line("c")[:40], b'"'])
def test_a_file_that_was_cut_off_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: bytes
) -> None:
    source = tmp_path / "in.json"
    source.write_bytes(b"[" + line("a") + b",\n" + line("b") + end)
    assert convert(source, "--from", "llava") == 4
    assert "is not valid JSON" in capsys.readouterr().err
    assert dropped(source, capsys)[0] == ["a", "b"]


def test_text_behind_the_array_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.json").write_bytes(array(line("a")) + b"\n[]")
    assert convert(tmp_path / "in.json", "--from", "llava") == 4
    assert "text follows the closing bracket" in capsys.readouterr().err


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be"])
def test_utf_16_is_not_taken_for_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], codec: str
) -> None:
    (tmp_path / "in.json").write_bytes(array(line("a")).decode().encode(codec))
    assert convert(tmp_path / "in.json") == 4
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("lines", [False, True])
def test_a_row_of_100_mb_is_passed_over_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: bool
) -> None:
    monkeypatch.setattr(json_rows, "ROW_LIMIT", 8 << 20)
    source = tmp_path / "in.json"
    with source.open("wb") as stream:
        stream.write(b"" if lines else b"[")
        stream.write(line("a") + (b"\n" if lines else b","))
        stream.write(b'{"id": "huge", "conversations": "' + b"x" * (100 << 20) + b'"}')
        stream.write((b"\n" if lines else b",") + line("b") + (b"" if lines else b"]"))
    tracemalloc.start()
    rows = [(raw.value or {}).get("id") or raw.fault for raw in read_rows(source)]  # type: ignore[attr-defined]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == ["a", "the row is longer than 8 MiB", "b"]
    assert peak < 64 << 20


def test_the_true_limit_holds_a_row_of_many_images() -> None:
    assert json_rows.ROW_LIMIT == 64 << 20
