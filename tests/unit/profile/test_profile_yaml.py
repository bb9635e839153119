"""The strict YAML loader."""

from __future__ import annotations

import pytest
import yaml
from taskpack.errors import ProfileError
from taskpack.profile.yaml_loader import StrictDumper, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("True", "True"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("2.", 2.0),
        ("0.5", 0.5),
        ("-3", -3),
        ("0", 0),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1.2.3", "1.2.3"),
        ("26.1.0", "26.1.0"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
    ],
)
def test_a_plain_scalar_is_null_boolean_decimal_or_text(text: str, value: object) -> None:
    read = read_yaml(f"key: {text}\n", "x.yaml").data["key"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["on", "010", "12:30", "1e-5", "true", "null", "5", "1.5", "<<", ""]
)
def test_text_that_looks_like_something_else_survives_a_round_trip(text: str) -> None:
    written = yaml.dump({"key": text}, Dumper=StrictDumper)
    assert read_yaml(written, "x.yaml").data == {"key": text}


def test_anchors_are_read() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x\n", "x").data == {"a": [1, 2], "b": [1, 2]}


def test_own_keys_win_over_merged_ones_wherever_they_stand() -> None:
    text = "base: &b {p: 1, q: 2}\nlater:\n  <<: *b\n  p: 3\nearlier:\n  p: 3\n  <<: *b\n"
    document = read_yaml(text, "x")
    data = document.data
    assert document.where(("earlier", "p")) == "x:6 (earlier.p)"
    assert data["later"] == data["earlier"] == {"p": 3, "q": 2}


def test_the_first_of_several_merged_mappings_wins() -> None:
    text = "a: &a {p: 1}\nb: &b {p: 2, q: 2}\nc:\n  <<: [*a, *b]\n"
    assert read_yaml(text, "x").data["c"] == {"p": 1, "q": 2}


def test_each_key_and_list_item_keeps_its_line() -> None:
    document = read_yaml("a:\n  b: 1\n\n  c:\n    - 5\n    - 6\n", "x.yaml")
    assert document.where(("a", "b")) == "x.yaml:2 (a.b)"
    assert document.where(("a", "c", 1)) == "x.yaml:6 (a.c[1])"


def test_a_key_that_is_not_there_stands_at_the_mapping_that_should_hold_it() -> None:
    assert read_yaml("a:\n  b: 1\n", "x.yaml").where(("a", "missing")) == "x.yaml:1 (a.missing)"


def error_text(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        read_yaml(text, "x.yaml")
    return str(caught.value)


def test_a_repeated_key_names_both_lines() -> None:
    assert error_text("a:\n  tp: 1\n  pp: 2\n  tp: 4\n") == (
        "error: a.tp is given twice, first on line 2\n"
        "  where: x.yaml:4 (a.tp)\n"
        "  why:   one of the two values would be lost\n"
        "  fix:   keep one of the two lines"
    )


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (
            "a: [1\n",
            "the text is not YAML: expected ',' or ']', but got '<stream end>'",
            "x.yaml:2",
        ),
        ("a: 1\n b: 2\n", "the text is not YAML: mapping values are not allowed here", "x.yaml:2"),
        ("a: b: c\n", "the text is not YAML: mapping values are not allowed here", "x.yaml:1"),
        ("\ta: 1\n", "the text is not YAML: found character '\\t' that", "x.yaml:1"),
        ("a: *nowhere\n", "the text is not YAML: found undefined alias 'nowhere'", "x.yaml:1"),
        ("a: 1\n---\nb: 2\n", "the text is not YAML: but found another document", "x.yaml:2"),
        ("a: \x01\n", "the text holds the character '\\x01'", "x.yaml:1"),
        ("", "a mapping of keys was expected, found nothing", "x.yaml:1"),
        ("# only a comment\n", "a mapping of keys was expected, found nothing", "x.yaml:1"),
        ("- 1\n", "a mapping of keys was expected, found a list", "x.yaml:1"),
        ("word\n", "a mapping of keys was expected, found a single value", "x.yaml:1"),
        ("a: &x [*x]\n", "a[0] contains itself", "x.yaml:1"),
        (
            "a: 1\nb: !!python/name:os.system ''\n",
            "b carries the tag tag:yaml.org,2002:python",
            "x.yaml:2",
        ),
        ("a: !!int five\n", "a carries the tag tag:yaml.org,2002:int", "x.yaml:1"),
        ("? [1, 2]\n: 3\n", "a key is a list", "x.yaml:1"),
        ("<<: 5\n", "<< is not followed by a mapping", "x.yaml:1"),
    ],
)
def test_what_is_not_a_profile_is_named_with_its_line(text: str, what: str, where: str) -> None:
    lines = error_text(text).splitlines()
    assert lines[0].startswith(f"error: {what}")
    assert lines[1].startswith(f"  where: {where}")
    assert [line[:8] for line in lines[2:]] == ["  why:  ", "  fix:  "]


def test_endless_nesting_is_refused() -> None:
    assert error_text("a: " + "[" * 5000).startswith("error: the text is nested too deeply")
