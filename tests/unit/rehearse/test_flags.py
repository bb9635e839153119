from __future__ import annotations

import pytest
from taskpack.errors import ProfileError
from taskpack.profile import load_release
from taskpack.rehearse.engine.flags import Flags, parse_flags

KNOWN = load_release("26.1.0").flags


def parse(*argv: str) -> Flags:
    return parse_flags(argv, KNOWN, release="26.1.0")


def test_values_are_read_by_type() -> None:
    flags = parse("--lr", "1.0e-5", "--train-iters=10", "--bf16", "--lora-target-modules", "a", "b")
    assert flags.number("--lr", 0) == 1e-5
    assert flags.count("--train-iters", 0) == 10
    assert flags.present("--bf16") and not flags.present("--fp16")
    assert flags.words("--lora-target-modules") == ("a", "b")


def test_targets_may_be_joined_by_commas() -> None:
    assert parse("--lora-target-modules", "a,b").words("--lora-target-modules") == ("a", "b")


def test_an_unknown_flag_names_the_nearest() -> None:
    with pytest.raises(ProfileError) as caught:
        parse("--train-iter", "10")
    *lines, fix = str(caught.value).splitlines()
    assert lines == [
        "error: MindSpeed-MM 26.1.0 has no flag --train-iter",
        "  where: command line of pretrain_vlm.py",
        "  why:   the trainer stops at a flag that it does not know",
    ]
    assert fix.startswith("  fix:   did you mean '--train-iters'")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--lr"], "--lr takes one value, and got 0"),
        (["--lr", "1", "2"], "--lr takes one value, and got 2"),
        (["--lr", "fast"], "--lr is 'fast', which is no float"),
        (["--train-iters", "1.5"], "--train-iters is '1.5', which is no int"),
        (["--bf16", "true"], "--bf16 takes no value, and got 'true'"),
        (["--distributed-backend", "hccl"], "--distributed-backend is 'hccl'; use one of"),
        (["stray", "--bf16"], "stray stands before any flag"),
    ],
)
def test_a_wrong_value_is_named(argv: list[str], what: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(*argv)
    assert caught.value.what.startswith(what)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ProfileError) as caught:
        parse("--nonsense", "--lr", "fast", "--bf16", "yes")
    assert len(caught.value.to_json()) == 3


def test_flags_that_nothing_reads_are_listed() -> None:
    flags = parse("--bf16", "--use-flash-attn", "--lr", "1")
    flags.number("--lr", 0)
    assert flags.unread() == ["--bf16", "--use-flash-attn"]


def test_an_older_release_knows_fewer_flags() -> None:
    with pytest.raises(ProfileError, match="has no flag --ckpt-format"):
        parse_flags(["--ckpt-format", "torch"], load_release("2.1.0").flags, release="2.1.0")
