"""Every command that these guides show works, or is checked in a named way.

They are README.md, tools/README.md and docker/README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme_blocks import Command, Section, fence_kinds, read_sections
from readme_workshop import REPO, Workshop, open_workshop, put_weights
from taskpack.cli import build_parser, main

pytestmark = [pytest.mark.slow, pytest.mark.torch]

README, README_ZH, TOOLS = REPO / "README.md", REPO / "README.zh.md", REPO / "tools" / "README.md"
DOCKER = REPO / "docker" / "README.md"
RUN = (README, TOOLS, DOCKER)
GUIDES = (*RUN, README_ZH, REPO / "tests" / "README.md")
TASK = "tasks/qwen2.5vl-32b"
FINETUNE = f"HOSTFILE=hosts bash {TASK}/finetune_qwen2_5_vl.sh"
CONVERT_INSIDE = "bash docker/run.sh --model qwen2.5vl-32b --npus none --checkout ~/MindSpeed-MM"

# These would install for minutes, or train and test for minutes; make says what it would do.
# The others need a hub, NPUs or the real weights; their dry run does everything but that.
INSTEAD = {
    "make rehearse": "make -n rehearse",
    "make test": "make -n test",
    "make setup TORCH='torch==2.13.0+cpu'": "make -nB setup TORCH='torch==2.13.0+cpu'",
    "python3 -m pip install .": (
        "python3 -m pip install --dry-run --no-deps --no-build-isolation ."
    ),
    f"bash {TASK}/download_weights.sh": f"bash {TASK}/download_weights.sh --dry-run",
    f"bash {TASK}/convert_hf_to_mm.sh": f"bash {TASK}/convert_hf_to_mm.sh --dry-run",
    FINETUNE: f"{FINETUNE} --dry-run",
    f"bash {TASK}/merge_lora.sh": f"bash {TASK}/merge_lora.sh --dry-run",
    f"bash {TASK}/convert_mm_to_hf.sh": f"bash {TASK}/convert_mm_to_hf.sh --dry-run",
    "make docker-build MODEL=qwen2.5vl-32b": (
        "make docker-build MODEL=qwen2.5vl-32b ARGS=--dry-run"
    ),
    "make docker-run MODEL=qwen2.5vl-32b CHECKOUT=~/MindSpeed-MM": (
        "make docker-run MODEL=qwen2.5vl-32b CHECKOUT=~/MindSpeed-MM ARGS=--dry-run"
    ),
    f"{CONVERT_INSIDE} -- bash {TASK}/convert_hf_to_mm.sh": (
        f"{CONVERT_INSIDE} --dry-run -- bash {TASK}/convert_hf_to_mm.sh"
    ),
}

# test_rehearse.py runs rehearsals; 32B's weights, geometry3k and other nodes are not here: only
# words count.
ONLY_PARSED = (
    "taskpack rehearse qwen2.5vl-32b --report rehearsal.html",
    "TUNING=full taskpack rehearse qwen2.5vl-32b",
    "taskpack rehearse qwen2.5vl-32b --data rows.json --media-root images"
    " --hf ckpt/hf_path/Qwen2.5-VL-32B-Instruct",
    "taskpack rehearse qwen2.5vl-32b --steps 12 --report rehearsal.html --keep /tmp/rehearsal",
    "taskpack inspect ckpt/mm_to_hf/Qwen2.5-VL-32B-Instruct",
    "taskpack doctor --task tasks/qwen2.5vl-32b --hosts node-0,node-1",
    "taskpack data geo3k geometry3k data/geo3k",
    "taskpack data geo3k geometry3k data --sft",
)

SECTIONS = [
    pytest.param(path, section, id=f"{path.relative_to(REPO)}: {section.title}")
    for path in RUN
    for section in read_sections(path)
]


def _parse(command: str) -> argparse.Namespace:
    words = shlex.split(command)
    while "=" in words[0]:
        words.pop(0)
    assert words.pop(0) == "taskpack", command
    return build_parser().parse_args(words)


def _check(command: Command, workshop: Workshop) -> str | None:
    """Run or check a command; give what it printed if it was run as it stands."""
    if command.text in ONLY_PARSED:
        _parse(command.text)
        return None
    instead = INSTEAD.get(command.text)
    done = workshop.run(instead or command.text)
    assert done.returncode == command.code, f"{command.text}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    if instead is None:
        return done.stderr if command.code else done.stdout
    if done.stdout.startswith("taskpack "):
        _parse(done.stdout)
    return None


def _run_section(section: Section, workshop: Workshop) -> None:
    for block in section.blocks:
        printed = [_check(command, workshop) for command in block.commands]
        if block.output is not None:
            assert printed[-1] == block.output


@pytest.mark.parametrize(("path", "section"), SECTIONS)
def test_the_commands_of_a_section_do_what_it_says(
    path: Path, section: Section, tmp_path: Path
) -> None:
    workshop = open_workshop(tmp_path)
    if path == TOOLS:
        put_weights(workshop.repo)
    _run_section(section, workshop)


def test_the_dry_run_of_the_launcher_prints_one_command(tmp_path: Path) -> None:
    (section,) = [s for s in read_sections(README) if "cluster" in s.title]
    workshop = open_workshop(tmp_path)
    for command in section.commands:
        if command.text == f"{FINETUNE} --dry-run":
            break
        workshop.run(INSTEAD.get(command.text, command.text))
    words = shlex.split(workshop.run(command.text).stdout)
    assert words[0] == "torchrun"
    assert words[words.index("--nnodes") + 1] == "2"
    assert words[words.index("--pipeline-model-parallel-size") + 1] == "8"


def test_nothing_is_listed_that_no_guide_shows() -> None:
    shown = {c.text for path in RUN for s in read_sections(path) for c in s.commands}
    assert shown.issuperset([*INSTEAD, *ONLY_PARSED])


def test_both_languages_show_the_same_commands_and_output() -> None:
    english = [section.blocks for section in read_sections(README)]
    assert english == [section.blocks for section in read_sections(README_ZH)]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(REPO)))
def test_a_command_stands_in_a_block_that_is_checked(path: Path) -> None:
    assert fence_kinds(path) <= {"bash", "text"}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(REPO)))
def test_every_link_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", [README, README_ZH], ids=lambda path: path.name)
def test_the_table_of_tasks_names_those_that_exist(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPO)
    assert main(["models", "--json"]) == 0
    models = [model["model"] for model in json.loads(capsys.readouterr().out)["models"]]
    rows = re.findall(r"^\| \[`([^`]+)`\]\(tasks/", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == models


def _verbs(parser: argparse.ArgumentParser, before: str = "taskpack") -> Iterator[str]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for name, below in group.choices.items():
            yield from _verbs(below, f"{before} {name}")
    # behind its verbs, so that the longest name of a command is found first
    if not any(group.required for group in groups):
        yield before


VERBS = tuple(_verbs(build_parser()))


def _verb(command: str) -> str | None:
    return next((verb for verb in VERBS if f"{command} ".startswith(f"{verb} ")), None)


def test_every_command_has_an_example() -> None:
    shown = {_verb(c.text) for section in read_sections(TOOLS) for c in section.commands}
    assert shown - {None} == set(VERBS)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(REPO)))
def test_a_command_within_a_sentence_exists(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    inline = re.findall(r"`(taskpack [^`]+)`", text)
    assert [command for command in inline if _verb(command) is None] == []
