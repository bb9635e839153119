"""Tables of npu-smi: A2 and A3, of any width."""

from __future__ import annotations

import pytest
from ascend_machine import WIDTHS, a2_chip, idle, info_table
from taskpack.launch.npu_smi import Board, NpuProcess, parse_board, parse_count, parse_info

A3_DIES = [
    (
        ("0     Ascend910", "OK", "170.1       40                0    / 0"),
        ("0     0", "0000:B1:00.0", "5           0    / 0          3100 / 65536"),
    ),
    (
        ("0     Ascend910", "OK", "-           39                0    / 0"),
        ("1     1", "NA", "0           0    / 0          2900/ 65536"),
    ),
    (
        ("7     Ascend910", "Alarm", "-           39                0    / 0"),
        ("1     15", "0000:C3:00.0", "0           0    / 0          59351/ 65536"),
    ),
]

every_width = pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)


@every_width
def test_a2_cards_are_read_at_any_width(widths: tuple[int, int, int]) -> None:
    cards = [a2_chip(0, hbm="40123/ 65536"), a2_chip(1, "Warning")]
    process = ("0       0", "4242", "python", "36800")
    table = parse_info(info_table(cards, [process, idle(1)], widths=widths))
    assert table.version == "24.9.rc9"
    assert [(chip.npu, chip.chip, chip.device) for chip in table.chips] == [(0, 0, 0), (1, 0, 1)]
    assert [chip.health for chip in table.chips] == ["OK", "Warning"]
    assert [(chip.hbm_used, chip.hbm_total) for chip in table.chips] == [
        (40123, 65536),
        (3012, 65536),
    ]
    first = table.chips[0]
    assert (first.name, first.bus) == ("910B3", "0000:A1:00.0")
    assert (first.power_watts, first.temperature, first.aicore_percent) == (95.5, 41.0, 12.0)
    assert table.processes == (NpuProcess(0, 0, 4242, "python", 36800),)
    assert table.processes_on(table.chips[0]) and not table.processes_on(table.chips[1])


@every_width
def test_the_dies_of_a3_have_the_numbers_of_their_device_nodes(
    widths: tuple[int, int, int],
) -> None:
    process = ("7       1", "77", "python3", "51000")
    table = parse_info(info_table(A3_DIES, [idle(0), process], widths=widths, phy=True))
    assert [(chip.npu, chip.chip, chip.device) for chip in table.chips] == [
        (0, 0, 0),
        (0, 1, 1),
        (7, 1, 15),
    ]
    assert [chip.power_watts for chip in table.chips] == [170.1, None, None]
    assert [chip.bus for chip in table.chips] == ["0000:B1:00.0", None, "0000:C3:00.0"]
    assert table.processes_on(table.chips[2]) == (NpuProcess(7, 1, 77, "python3", 51000),)


def test_a_container_shows_only_its_own_cards() -> None:
    table = parse_info(info_table([a2_chip(2), a2_chip(5)], [idle(2), idle(5)]))
    assert [chip.device for chip in table.chips] == [2, 5]


def test_a_process_without_a_name_is_still_a_process() -> None:
    table = parse_info(info_table([a2_chip(0)], [("0       0", "4242", "", "36800")]))
    assert table.processes == (NpuProcess(0, 0, 4242, "", 36800),)


def test_the_number_of_a_process_is_that_of_the_host() -> None:
    heads = (
        "NPU     Chip",
        "Process id",
        "Process name",
        "Process memory(MB)",
        "Process id in container",
    )
    text = info_table([a2_chip(0)], [("0       0", "4242", "python", "36800", "17")], heads=heads)
    assert parse_info(text).processes == (NpuProcess(0, 0, 4242, "python", 36800),)


@pytest.mark.parametrize("text", ["", "npu-smi: command not found", "| | |", "|", "||||\n|x|y|z|"])
def test_other_text_is_no_table(text: str) -> None:
    table = parse_info(text)
    assert (table.chips, table.processes) == ((), ())


def test_a_table_that_is_cut_off_gives_what_is_whole() -> None:
    lines = info_table([a2_chip(0), a2_chip(1)], []).splitlines()
    below = next(n for n, line in enumerate(lines) if line.startswith("| 1 "))
    assert [chip.npu for chip in parse_info("\n".join(lines[: below + 1])).chips] == [0]


def test_the_list_counts_cards() -> None:
    text = "\tTotal Count                    : 8\n\n\tNPU ID                         : 0\n"
    assert parse_count(text) == 8
    assert parse_count("nothing") is None


def test_the_board_names_driver_and_firmware() -> None:
    text = """
\tNPU ID                         : 0
\tProduct Name                   : IT21HMDB01
\tSoftware Version               : 25.5.0
\tFirmware Version               : 7.8.0.2.212
\tCompatibility                  : OK
\tPCIe Bus Info                  : 0000:C1:00.0
\tFaulty Chip Count              : 0
"""
    assert parse_board(text) == Board("25.5.0", "7.8.0.2.212", "OK", 0)


def test_a_board_that_says_nothing_is_empty() -> None:
    assert parse_board("This device does not support querying.") == Board(None, None, None, None)
