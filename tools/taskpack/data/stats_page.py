"""Statistics as an HTML page with pictures of some rows, or as one picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from taskpack.data.check_page import page, table
from taskpack.data.check_row import Judged
from taskpack.data.images import DAMAGE
from taskpack.data.stats import Stats

THUMBNAIL = 192
"""Pixels of its longer side."""
WIDTH, HEIGHT, MARGIN = 720, 260, 40


def stats_page(stats: Stats) -> str:
    """Build the page."""
    rows = [_sampled(judged) for _, _, judged in sorted(stats.sample, key=lambda entry: entry[1])]
    parts = [
        table(("", ""), stats.facts()),
        "<h2>Tokens per row</h2>",
        _bars_svg(stats.histogram()),
        "<h2>Some rows</h2>",
        "<table><tr><th>id</th><th>images</th><th>question, answer</th><th>tokens</th></tr>",
        *rows,
        "</table>",
    ]
    return page("A data set in numbers", parts)


def _sampled(judged: Judged) -> str:
    pictures = "".join(_thumbnail(path) for path in judged.media[:4])
    question, answer = (escape(text) for text in judged.opening)
    return (
        f"<tr><td>{escape(judged.id or '')}</td><td>{pictures}</td>"
        f"<td>{question}<br><br>{answer}</td><td>{judged.tokens}</td></tr>"
    )


def _thumbnail(path: Path) -> str:
    """Shrink an image into the page; a video shows its name."""
    from PIL import Image

    stream = io.BytesIO()
    try:
        with Image.open(path) as image:
            image.thumbnail((THUMBNAIL, THUMBNAIL))
            image.convert("RGB").save(stream, "JPEG", quality=75)
    except DAMAGE:
        return escape(path.name)
    data = base64.b64encode(stream.getvalue()).decode()
    return f"<img alt='{escape(path.name)}' src='data:image/jpeg;base64,{data}'>"


def _places(histogram: Sequence[tuple[int, int]]) -> list[tuple[float, float, float, float]]:
    """Place the bars: left, top, width, height."""
    most = max((count for _, count in histogram), default=1) or 1
    step = (WIDTH - 2 * MARGIN) / max(1, len(histogram))
    heights = [(HEIGHT - 2 * MARGIN) * count / most for _, count in histogram]
    return [
        (MARGIN + number * step, HEIGHT - MARGIN - height, step - 2, height)
        for number, height in enumerate(heights)
    ]


def _bars_svg(histogram: Sequence[tuple[int, int]]) -> str:
    rects = "".join(
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}'>"
        f"<title>up to {edge} tokens: {count} rows</title></rect>"
        for (x, y, w, h), (edge, count) in zip(_places(histogram), histogram, strict=True)
    )
    end = histogram[-1][0] if histogram else 0
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='rows by tokens'>{rects}"
        f"<text x='{WIDTH - MARGIN}' y='{HEIGHT - 18}' text-anchor='end'>{end} tokens</text></svg>"
    )


def save_plot(stats: Stats, path: Path) -> None:
    """Draw the histogram of tokens as a PNG."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    histogram = stats.histogram()
    for x, y, width, height in _places(histogram):
        pen.rectangle((x, y, x + width, y + height), fill="#2f6fd0")
    end = histogram[-1][0] if histogram else 0
    pen.text((MARGIN, HEIGHT - 28), f"rows by tokens, 0 to {end}", fill="black")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "PNG")
