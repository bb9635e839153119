"""Whole logs: which of many errors came first, whichever way ranks write into one file."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from taskpack.cli import main

PROGRESS = (
    " [2026-08-01 10:00:{:02d}] iteration {:8d}/ 100 | elapsed time per iteration (ms): 900.0 |"
)
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/w/pretrain_vlm.py", line 20, in <module>',
    "    main()",
    '  File "/w/mindspeed_mm/data/rows.py", line 88, in read',
    '    return row["images"]',
    "KeyError: 'images'",
]
RUNTIME = [
    "Traceback (most recent call last):",
    '  File "/w/pretrain_vlm.py", line 20, in <module>',
    "    main()",
    '  File "/usr/lib/python3.10/site-packages/torch/distributed/c10d.py", line 9, in all_reduce',
    "    work = group.allreduce([tensor], opts)",
    "RuntimeError: InnerRun:OpMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6",
    "[ERROR] 2026-08-01-10:20:05 (PID:1, Device:{0}, RankID:{0}) ERR01100 OPS call acl api failed.",
    "EI0002: 2026-08-01-10:20:05.1 The wait execution of the Notify register times out.",
    "        Solution: 1. Check whether the address already in use. 2. Out of memory?",
    "        TraceBack (most recent call last):",
    "        Notify wait timeout [FUNC:Wait][FILE:x.cc][LINE:1]",
]


def report(
    rank: int, code: int, *, pid: int = 4242, time: str = "2026-08-01_10:00:09"
) -> list[str]:
    """What torchrun prints at its end."""
    return [
        f"E0801 10:00:09.6 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        f"(exitcode: {code}) local_rank: {rank % 8} (pid: {pid}) of binary: /usr/bin/python3",
        "Traceback (most recent call last):",
        '  File "/usr/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "pretrain_vlm.py FAILED",
        "-" * 60,
        "Failures:",
        "[1]:",
        "  time      : 2026-08-01_10:00:20",
        "  host      : node-0",
        "  rank      : 7 (local_rank: 7)",
        "  exitcode  : -6 (pid: 4249)",
        "  error_file: <N/A>",
        "  traceback : Signal 6 (SIGABRT) received by PID 4249",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {time}",
        "  host      : node-0",
        f"  rank      : {rank} (local_rank: {rank % 8})",
        f"  exitcode  : {code} (pid: {pid})",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see the documentation",
        "=" * 60,
    ]


def prefixed(rank: int, lines: list[str]) -> list[str]:
    return [
        f"[rank{rank}]: {line}".format(rank) if "{0}" in line else f"[rank{rank}]: {line}"
        for line in lines
    ]


@pytest.fixture
def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Write logs, explain them, give the exit code and the JSON."""

    def run(*logs: list[str]) -> tuple[int, dict[str, Any]]:
        paths = []
        for number, lines in enumerate(logs):
            path = tmp_path / f"node{number}.log"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            paths.append(str(path))
        code = main(["doctor", "explain", *paths, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_the_exception_of_one_rank_beats_what_others_say_of_it(explained: Any) -> None:
    lines = [PROGRESS.format(n, n) for n in range(5)]
    lines += prefixed(3, TRACEBACK) + prefixed(0, RUNTIME) + prefixed(1, RUNTIME) + report(3, 1)
    code, found = explained(lines)
    first = found["first"]
    assert code == 0
    assert (first["rank"], first["text"], first["line"]) == (3, "KeyError: 'images'", 11)
    assert first["frame"] == "/w/mindspeed_mm/data/rows.py:88 in read"
    assert (found["died_first"]["rank"], found["died_first"]["exit_code"]) == (3, 1)
    others = {other["name"]: other for other in found["others"]}
    assert others["EI0002 rank stopped answering"]["ranks"] == [0, 1]
    assert others["ERR00100 ACL call"]["ranks"] == [0, 1]
    assert "ChildFailedError" not in json.dumps(found)


def test_code_of_the_user_is_named_beside_the_library_that_raised(explained: Any) -> None:
    lines = [*RUNTIME[:5], "TypeError: allreduce() takes 2 arguments"]
    first = explained(lines)[1]["first"]
    assert first["frame"] == (
        "/usr/lib/python3.10/site-packages/torch/distributed/c10d.py:9 in all_reduce, called from "
        "/w/pretrain_vlm.py:20 in <module>"
    )


def test_interleaved_ranks_with_prefixes_are_told_apart(explained: Any) -> None:
    late = [*TRACEBACK[:5], "KeyError: 'messages'"]
    mixed = [
        line
        for pair in zip(prefixed(1, TRACEBACK), prefixed(2, late), strict=True)
        for line in pair
    ]
    found = explained(mixed)[1]
    texts = {one["rank"]: one["text"] for one in (found["first"], *found["others"])}
    assert texts[1] == "KeyError: 'images'"


def test_interleaved_ranks_without_prefixes_end_in_their_exception(explained: Any) -> None:
    mixed = [line for line in TRACEBACK for _ in range(3)]
    mixed.insert(7, PROGRESS.format(1, 1))
    code, found = explained(mixed)
    assert (code, found["first"]["count"]) == (0, 3)
    assert found["first"]["text"] == "KeyError: 'images'"
    assert found["first"]["frame"] == "/w/mindspeed_mm/data/rows.py:88 in read"


def test_ranks_of_one_error_are_gathered(explained: Any) -> None:
    lines = [line for rank in (0, 1, 2, 5) for line in prefixed(rank, TRACEBACK)]
    first = explained(lines)[1]["first"]
    assert (first["count"], first["ranks"], first["rank"]) == (4, [0, 1, 2, 5], 0)


def test_the_exception_that_led_to_another_comes_first(explained: Any) -> None:
    lines = [
        *TRACEBACK,
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *TRACEBACK[:5],
        "ValueError: a row is broken",
    ]
    found = explained(lines)[1]
    assert found["first"]["text"] == "KeyError: 'images'"
    assert [other["text"] for other in found["others"]] == ["ValueError: a row is broken"]


def test_a_traceback_inside_the_report_of_torchrun_has_the_rank_of_its_entry(
    explained: Any,
) -> None:
    lines = report(6, 1)
    lines[-2:] = [
        "  traceback : Traceback (most recent call last):",
        *(f"    {line[2:] if number else line}" for number, line in enumerate(
            ["  " + line for line in TRACEBACK[1:]])),
        "=" * 60,
    ]  # fmt: skip
    first = explained(lines)[1]["first"]
    assert (first["rank"], first["text"]) == (6, "KeyError: 'images'")


def test_a_rank_that_was_killed_had_no_chance_to_say_so(explained: Any) -> None:
    lines = prefixed(0, RUNTIME) + report(11, -9)
    found = explained(lines)[1]
    assert found["first"]["name"] == "ended by SIGKILL"
    assert found["first"]["text"] == "rank 11 (pid 4242) was ended by SIGKILL (exit code -9)"
    assert "memory" in found["first"]["why"]
    assert found["died_first"]["host"] == "node-0"


@pytest.mark.parametrize(
    ("code", "name"),
    [(-11, "SIGSEGV"), (-7, "SIGBUS"), (137, "SIGKILL"), (-6, "SIGABRT"), (143, "SIGTERM")],
)
def test_exit_codes_of_signals_are_named(explained: Any, code: int, name: str) -> None:
    assert explained(report(1, code))[1]["first"]["name"] == f"ended by {name}"


def test_without_a_report_the_line_about_the_process_counts(explained: Any) -> None:
    found = explained(report(3, -9)[:1])[1]
    assert found["first"]["text"].startswith("local rank 3 (pid 4242) was ended by SIGKILL")
    assert found["died_first"]["first_observed"] is False


def test_what_the_training_survived_comes_last(explained: Any) -> None:
    lines = [*TRACEBACK, *(PROGRESS.format(n, n) for n in range(5)), *prefixed(2, RUNTIME)]
    found = explained(lines)[1]
    assert found["first"]["name"] == "EI0002 rank stopped answering"
    assert [other["text"] for other in found["others"] if other["survived"]] == [
        "KeyError: 'images'"
    ]


def test_the_same_error_at_the_end_is_not_hidden_by_an_earlier_one(explained: Any) -> None:
    lines = [*TRACEBACK, *(PROGRESS.format(n, n) for n in range(5)), *TRACEBACK]
    first = explained(lines)[1]["first"]
    assert (first["line"], first["survived"]) == (len(lines), False)


def test_of_several_nodes_the_earlier_failure_counts(explained: Any) -> None:
    late = ["[2026-08-01 10:05:00] saving", *TRACEBACK, *report(3, 1, time="2026-08-01_10:05:01")]
    early = [
        "[2026-08-01 10:01:00] saving",
        "OSError: [Errno 28] No space left on device",
        *report(12, 1, time="2026-08-01_10:01:01"),
    ]
    found = explained(late, early)[1]
    assert found["first"]["name"] == "disk full"
    assert found["died_first"]["rank"] == 12


def test_lines_of_a_launcher_of_several_nodes_are_read(explained: Any) -> None:
    lines = [f"[node-1] {line}" for line in prefixed(9, TRACEBACK)]
    lines += [f"[10.0.0.7] {line}" for line in report(9, 1)]
    found = explained(lines)[1]
    assert (found["first"]["rank"], found["first"]["text"]) == (9, "KeyError: 'images'")
    assert found["died_first"]["rank"] == 9


def test_our_own_errors_are_shown_with_their_own_fix(explained: Any) -> None:
    lines = [
        "error: the data file 'rows.json' cannot be read",
        "  where: tasks/x/data.json, seen from /w",
        "  why:   the trainer reads its samples from it",
        "  fix:   put it there",
    ]
    first = explained(lines)[1]["first"]
    assert first["text"] == "the data file 'rows.json' cannot be read"
    assert (first["why"], first["fix"]) == ("the trainer reads its samples from it", "put it there")


def test_a_code_that_no_table_knows_is_still_shown(explained: Any) -> None:
    lines = prefixed(4, ["EE1001: The argument is invalid.", "[ERROR] (RankID:4) ERR01002 OPS x"])
    found = explained(lines)[1]
    assert [one["name"] for one in (found["first"], *found["others"])] == ["EE1001", "ERR01002"]
    assert "runtime" in found["first"]["why"]
    assert "a wrong type" in found["others"][0]["why"]


def test_progress_bars_colours_and_foreign_bytes_do_not_hide_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(
        "训练开始 \u2713\n".encode("gbk", "replace")
        + b"\xff\xfe\x00 broken\r\n"
        + b"10%|#  |\r20%|## |\r\x1b[31mOSError: [Errno 28] No space left on device\x1b[0m\n"
    )
    assert main(["doctor", "explain", str(log), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["first"]
    assert (first["line"], first["text"]) == (3, "OSError: [Errno 28] No space left on device")


def test_a_packed_log_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log.gz"
    log.write_bytes(gzip.compress("\n".join(TRACEBACK).encode()))
    assert main(["doctor", "explain", str(log)]) == 0
    assert capsys.readouterr().out.startswith("first error: KeyError: 'images'\n")


def test_a_log_without_an_error_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_text(PROGRESS.format(1, 1) + "\nsaved\n", encoding="utf-8")
    assert main(["doctor", "explain", str(log)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("no error that is known\n")
    assert f"{log}: 2 lines, the last: saved" in printed


def test_an_empty_log_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.touch()
    assert main(["doctor", "explain", str(log)]) == 1
    assert "0 lines" in capsys.readouterr().out


def test_a_log_that_cannot_be_read_is_an_error_of_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "run.log.gz"
    broken.write_bytes(gzip.compress(b"x" * 5000)[:-20])
    for log, what in ((tmp_path / "none.log", "No such file"), (broken, "Compressed file ended")):
        assert main(["doctor", "explain", str(log)]) == 5
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith(f"error: the log cannot be read: {what}")
        assert lines[1] == f"  where: {log}"
        assert [line.split(":")[0].strip() for line in lines[2:4]] == ["why", "fix"]


@pytest.mark.slow
def test_a_large_log_takes_constant_memory(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    noise = "".join(PROGRESS.format(n % 60, n) + "\n" for n in range(2000)).encode()
    with log.open("wb") as file:
        for _ in range(1500):
            file.write(noise)
        file.write(b"x" * 40_000_000 + b"\n")
        file.write("\n".join(prefixed(3, TRACEBACK)).encode())
    assert log.stat().st_size > 300_000_000
    limit = 400 << 20
    words = [sys.executable, "-m", "taskpack", "doctor", "explain", str(log), "--json"]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        env={"OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["first"]["line"] == 2000 * 1500 + 7
