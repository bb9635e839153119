"""What a data set is made of, and what it costs to train on."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from taskpack.data.check import CheckOptions, CheckReport, check
from taskpack.data.check_row import Judged
from taskpack.data.row_file import draw
from taskpack.data.trainer import PAD_MULTIPLE
from taskpack.profile import Profile

SAMPLED_ROWS = 12
_BINS = 16


@dataclass(slots=True)
class Stats:
    """Numbers over the good rows of a set."""

    profile: Profile
    report: CheckReport = field(default_factory=CheckReport)
    tokens: array[int] = field(default_factory=lambda: array("I"))
    """Of each row, before the cut."""
    kept: array[int] = field(default_factory=lambda: array("I"))
    """Of each row, after the cut."""
    visual_tokens: int = 0
    turns: Counter[int] = field(default_factory=Counter)
    images: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Pixel sizes, rounded up to 64."""
    sample: list[tuple[int, int, Judged]] = field(default_factory=list)
    """A heap of the rows that are shown, by the number drawn for each."""

    def visit(self, judged: Judged) -> None:
        """Take one good row."""
        number = len(self.tokens)
        self.tokens.append(judged.tokens)
        self.kept.append(judged.kept)
        self.visual_tokens += judged.visual_tokens
        self.turns[judged.turns] += 1
        self.images[len(judged.media)] += 1
        for width, height in judged.sizes:
            self.sizes[-(-width // 64) * 64, -(-height // 64) * 64] += 1
        entry = (-draw(number, 0), number, judged)
        push = heapq.heappush if len(self.sample) < SAMPLED_ROWS else heapq.heappushpop
        push(self.sample, entry)

    @property
    def visual_share(self) -> float:
        """Share of the tokens that are images."""
        return self.visual_tokens / max(1, sum(self.tokens))

    @property
    def steps_per_epoch(self) -> int:
        """Steps that see every row once."""
        return len(self.tokens) // self.profile.global_batch

    @property
    def padding_share(self) -> float:
        """Share of a micro batch that is padding, expected over random batches."""
        kept = np.sort(np.asarray(self.kept, dtype=np.float64))
        if not kept.size:
            return 0.0
        padded = np.ceil(kept / PAD_MULTIPLE) * PAD_MULTIPLE
        rank = np.arange(1, kept.size + 1) / kept.size
        below = np.concatenate(([0.0], rank[:-1]))
        size = self.profile.batch.micro
        longest = float(np.sum(padded * (rank**size - below**size)))
        return 1.0 - float(kept.mean()) / longest

    def percentile(self, share: float) -> int:
        """Tokens that this percentage of the rows stays within."""
        return int(np.percentile(np.asarray(self.tokens), share)) if self.tokens else 0

    def histogram(self) -> list[tuple[int, int]]:
        """Count rows by tokens: the upper end of each bin, and its rows."""
        if not self.tokens:
            return []
        counts, edges = np.histogram(np.asarray(self.tokens), bins=_BINS)
        return [(int(edge), int(count)) for edge, count in zip(edges[1:], counts, strict=True)]

    def to_json(self) -> dict[str, object]:
        """Give the numbers as plain values."""
        return {
            "rows": self.report.rows,
            "good": self.report.good,
            "turns": {str(key): count for key, count in sorted(self.turns.items())},
            "images_per_row": {str(key): count for key, count in sorted(self.images.items())},
            "sizes": {f"{w}x{h}": count for (w, h), count in self.sizes.most_common()},
            "tokens": {
                "exact": self.report.exact,
                "median": self.percentile(50),
                "p90": self.percentile(90),
                "max": self.report.longest,
                "cut_rows": self.report.cut_rows,
                "histogram": self.histogram(),
            },
            "visual_share": round(self.visual_share, 4),
            "padding_share": round(self.padding_share, 4),
            "steps_per_epoch": self.steps_per_epoch,
        }

    def facts(self) -> Iterator[tuple[str, str]]:
        """Name and spell each number."""
        report, profile = self.report, self.profile
        yield "rows", f"{report.rows}, {report.good} good"
        yield "turns per row", _shares(self.turns)
        yield "images per row", _shares(self.images)
        shown = [f"{w} x {h}: {n}" for (w, h), n in self.sizes.most_common(5)]
        yield "sizes up to (pixels)", ", ".join(shown) or "no images"
        estimated = "" if report.exact else " (estimated)"
        spread = f"median {self.percentile(50)}, 90 % {self.percentile(90)}, max {report.longest}"
        yield "tokens per row", spread + estimated
        limit = profile.train.seq_length
        yield f"cut to {limit} tokens", f"{report.cut_rows} rows"
        yield "tokens of images", f"{self.visual_share:.1%}"
        yield f"padding at batch.micro {profile.batch.micro}", f"{self.padding_share:.1%}"
        iters, batch = profile.train.iters, profile.global_batch
        epochs = f" = {iters * batch / report.good:.2f} epochs" if report.good else ""
        per_epoch = f"{self.steps_per_epoch} of {batch} rows each"
        yield "steps per epoch", f"{per_epoch}; train.iters {iters}{epochs}"


def collect_stats(
    inputs: Sequence[Path], profile: Profile, checkout: Path, options: CheckOptions
) -> Stats:
    """Measure every good row; memory grows by some twenty bytes per row.

    Raises:
        DatasetError: A file holds no rows in any form known here.
        HostError: Pillow is missing.
    """
    stats = Stats(profile)
    stats.report = check(inputs, profile, checkout, options, visit=stats.visit)
    return stats


def bars(histogram: Sequence[tuple[int, int]], width: int = 40) -> Iterator[str]:
    """Draw a histogram in letters."""
    most = max((count for _, count in histogram), default=0)
    for edge, count in histogram:
        bar = "#" * (-(-count * width // most) if most else 0)
        yield f"  up to {edge:>6} {bar} {count}"


def _shares(counts: Counter[int]) -> str:
    total = sum(counts.values())
    parts = [f"{key}: {count / total:.0%}" for key, count in sorted(counts.items())[:6]]
    return ", ".join(parts) or "-"
