"""Convert a generated array of LLaVA rows, beside what `json.load` and `json.dump` take for it.

Every figure is of a process of its own: seconds, MB of JSON per second, and the peak of anonymous
memory over the process and its workers. Run it with `make bench-data`; it needs about three times
`--megabytes` of disk and, for the comparison, several times as much memory.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TEXT = "a man rides his horse along the beach while the sun sets behind low clouds, far from home"
WORDS = TEXT.split()
IMAGES = 1000
LOAD_AND_DUMP = """
import json, sys
with open(sys.argv[1]) as stream:
    rows = json.load(stream)
with open(sys.argv[2], "w") as stream:
    json.dump(rows, stream, ensure_ascii=False)
"""
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One process and its workers."""

    seconds: float
    peak_bytes: int


def generate(folder: Path, megabytes: int) -> Path:
    """Write rows of about one kilobyte with up to four rounds of question and answer."""
    draw = random.Random(1)
    (folder / "img").mkdir(parents=True)
    for number in range(IMAGES):
        (folder / "img" / f"{number}.jpg").touch()
    # rows are drawn from a pool: generating each anew would take longer than all runs
    pool = [json.dumps(_talk(draw)) for _ in range(5000)]
    path = folder / "rows.json"
    with path.open("w") as stream:
        stream.write("[")
        written = number = 0
        while written < megabytes * 10**6:
            head = f'{{"id": "{number:012}", "image": "img/{number % IMAGES}.jpg"'
            row = f'{head}, "conversations": {draw.choice(pool)}}}'
            stream.write(f"{',' if number else ''}\n{row}")
            written += len(row) + 2
            number += 1
        stream.write("\n]\n")
    return path


def _talk(draw: random.Random) -> list[dict[str, str]]:
    turns = []
    for number in range(draw.choice((1, 1, 2, 3, 4))):
        question = " ".join(draw.choices(WORDS, k=12))
        answer = " ".join(draw.choices(WORDS, k=draw.randint(10, 90)))
        turns.append({"from": "human", "value": "<image>\n" * (number == 0) + question + "?"})
        turns.append({"from": "gpt", "value": answer + "."})
    return turns


def measure(command: Sequence[str]) -> Run:
    """Run a command and watch the anonymous memory of its processes."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_anonymous_bytes, _family(process.pid))))
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit((process.stderr.read() if process.stderr else b"").decode())
    return Run(time.monotonic() - started, peak)


def _family(pid: int) -> list[int]:
    """List a process and everything it started."""
    found = [pid]
    for parent in found:
        try:
            tasks = Path(f"/proc/{parent}/task").glob("*/children")
            found += [int(child) for task in tasks for child in task.read_text().split()]
        except OSError:
            continue
    return found


def _anonymous_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(sizes[0]) * 1024 if sizes else 0


def main() -> None:
    """Generate, run each command, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--no-comparison", action="store_true", help="leave json.load out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        rows = generate(folder, args.megabytes)
        taskpack = [sys.executable, "-m", "taskpack", "data", "convert", str(rows)]
        commands = {
            "json.load + json.dump": [sys.executable, "-c", LOAD_AND_DUMP, str(rows)],
            "convert": taskpack,
            "convert --workers 0": [*taskpack, "--workers", "0"],
        }
        if args.no_comparison:
            del commands["json.load + json.dump"]
        print(f"{rows.stat().st_size / 1e6:.0f} MB of JSON")
        base = None
        for title, command in commands.items():
            out = folder / "out.json"
            out.unlink(missing_ok=True)
            run = measure([*command, str(out)])
            base = base or run
            speed = rows.stat().st_size / 1e6 / run.seconds
            ratios = f"x {base.seconds / run.seconds:.2f}, x {run.peak_bytes / base.peak_bytes:.3f}"
            print(
                f"{title:<22} {run.seconds:7.1f} s {speed:6.1f} MB/s "
                f"{run.peak_bytes >> 20:6} MiB   speed and memory {ratios}"
            )


if __name__ == "__main__":
    main()
