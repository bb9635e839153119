import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from taskpack.data import fast_json, sources
from taskpack.data.array_chunks import Chunk, Rest, array_chunks
from taskpack.data.convert import ConvertOptions, OnBad, convert
from taskpack.data.json_rows import array_rows
from taskpack.errors import TaskpackError

TRAPS = ['}, {"id": "no row"', '"}, {', "]}, {", "\\", '\\"', "plain", "\u6587", "\ud83d", "]"]
DAMAGE = ["", "}", "nul", "[", '{"id": "x", ', '"']


def row(name: object, text: str, **more: object) -> dict[str, Any]:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": text or "a"}]
    named = {} if name is None else {"id": name}
    return {**named, "conversations": turns, **more}


rows = st.builds(
    row,
    st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just(2**70), st.just(0.5)),
    st.lists(st.sampled_from(TRAPS), max_size=3).map("".join),
    nested=st.sampled_from([None, [{"id": "a"}, {"id": "b"}], {"id": [{}, {"id": 1}]}]),
)
spaces = st.sampled_from(["", " ", "\n", "\r\n\t", " \n  "])


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskpack.data.array_chunks.CHUNK_BYTES", 100)
    monkeypatch.setattr("taskpack.data.array_chunks._HEAD_BYTES", 40)


def outcome(source: Path, out: Path, **options: Any) -> tuple[object, ...]:
    """Everything that a conversion says and writes."""
    told: list[str] = []
    out.unlink(missing_ok=True)
    try:
        account = convert([source], out, ConvertOptions(workers=0, **options), tell=told.append)
    except TaskpackError as error:
        return (str(error), error.where, told)
    return (account.to_json(), told, out.read_bytes() if out.exists() else b"")


def row_by_row(stream: io.BytesIO) -> Any:
    return iter([Rest(sources.TextWindow(stream), inside=False)])


@pytest.mark.usefixtures("small_chunks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(rows, max_size=12), spaces, spaces, st.sampled_from(DAMAGE), st.data())
def test_chunks_change_nothing(
    tmp_path: Path,
    values: list[dict[str, Any]],
    before: str,
    after: str,
    damage: str,
    data: st.DataObject,
) -> None:
    text = f"{before}[{after}" + f"{before},{after}".join(map(json.dumps, values)) + f"{before}]"
    at = data.draw(st.integers(0, len(text)))
    content = (text[:at] + damage + text[at:]).encode()
    source = tmp_path / "rows.json"
    source.write_bytes(gzip.compress(content) if data.draw(st.booleans()) else content)
    on_bad = data.draw(st.sampled_from(OnBad))
    chunked = outcome(source, tmp_path / "out.json", on_bad=on_bad)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "array_chunks", row_by_row)
        assert outcome(source, tmp_path / "out.json", on_bad=on_bad) == chunked


@pytest.mark.usefixtures("small_chunks")
def test_an_array_is_cut_between_rows_and_nothing_of_it_is_lost() -> None:
    text = json.dumps([row(number, '}, {"id" ') for number in range(50)], indent=1).encode()
    items = list(array_chunks(io.BytesIO(text)))
    chunks = [item for item in items if isinstance(item, Chunk)]
    assert len(chunks) > 10 and all(isinstance(item, Chunk) for item in items[:-1])
    at, seen = text.index(b"[") + 1, 0
    for chunk in chunks:
        assert text[at : at + len(chunk.text)] == chunk.text
        assert chunk.byte == at and chunk.line == 1 + text.count(b"\n", 0, at)
        at += len(chunk.text)
        seen += len(json.loads(chunk.array))
    rest = items[-1]
    assert isinstance(rest, Rest)
    assert seen + len(list(array_rows(rest.window, inside=True))) == 50


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrong", [7, 18])
def test_rows_behind_a_wrong_cut_keep_their_numbers(
    wrong: int, workers: int, tmp_path: Path
) -> None:
    inner = [{"id": "x", "value": "y" * 90}, {"id": "z"}] * 3
    first = [row(None, "a", nested=inner if number == wrong else None) for number in range(20)]
    first[15]["conversations"] = []
    for name, values in (("a.json", first), ("b.json", [row(None, "b")] * 9)):
        # the key that rows start with is one of the inner objects as well
        values = [{"id": None, **value} for value in values]
        (tmp_path / name).write_text(json.dumps(values))
    options = ConvertOptions(on_bad=OnBad.DROP, workers=workers)
    out = tmp_path / "out.json"
    account = convert([tmp_path / "a.json", tmp_path / "b.json"], out, options)
    assert [item["id"] for item in json.loads(out.read_text())] == [
        f"row-{number}" for number in range(29) if number != 15
    ]
    assert [(found.row, Path(found.file).name) for found in account.found.kept] == [(15, "a.json")]


def test_the_standard_library_reads_and_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows.jsonl"
    values = [row(name, text) for name in (1, 2**70, "a", None) for text in TRAPS]
    source.write_text("\n".join(map(json.dumps, values)))
    fast = outcome(source, tmp_path / "out.json", on_bad=OnBad.DROP)
    monkeypatch.setattr(fast_json, "orjson", None)
    assert outcome(source, tmp_path / "out.json", on_bad=OnBad.DROP) == fast
    assert b'"id":"1180591620717411303424"' in fast[2]  # type: ignore[operator]
