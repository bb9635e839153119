"""A rehearsal as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from taskpack.rehearse.outcome import Outcome, verdict

WIDTH, HEIGHT, MARGIN = 640, 240, 44
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
  border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
.PASS { color: #16803c; font-weight: 600; } .FAIL { color: #c22f2f; font-weight: 600; }
code { font-size: .9em; } svg { max-width: 100%; height: auto; }
svg text { font-size: 11px; fill: currentColor; }
.line { fill: none; stroke: #2f6fd0; stroke-width: 2; } .axis { stroke: #8888; }
"""


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the page; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_report(outcome), encoding="utf-8")


def render_report(outcome: Outcome) -> str:
    """Build the page."""
    title = f"Rehearsal of {outcome.model} ({outcome.tuning})"
    word = verdict(outcome.passed)
    checks = ((verdict(c.passed), c.name, c.detail) for c in outcome.checks)
    steps = ((verdict(s.passed), s.name, s.command, f"{s.seconds:.1f} s") for s in outcome.steps)
    body = [
        f"<h1>{escape(title)}: <span class='{word}'>{word}</span></h1>",
        f"<p>{escape(outcome.engine)}, {outcome.seconds:.0f} s. {escape(outcome.limits)}</p>",
        "<h2>Checks</h2>",
        _table(("", "check", "numbers"), checks),
        "<h2>Loss</h2>",
        loss_curve(outcome.losses),
        "<h2>Steps</h2>",
        _table(("", "step", "command", "time"), steps),
        "<h2>What was rehearsed</h2>",
        _table(("", ""), outcome.facts.items()),
    ]
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads) if any(heads) else ""
    lines = [f"<tr>{head}</tr>"] if head else []
    for row in rows:
        cells = "".join(_cell(text) for text in row)
        lines.append(f"<tr>{cells}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _cell(text: str) -> str:
    style = f" class='{text}'" if text in ("PASS", "FAIL") else ""
    return f"<td{style}>{escape(text)}</td>"


def loss_curve(losses: Sequence[float]) -> str:
    """Draw the loss of every step as an inline SVG."""
    if len(losses) < 2:
        return "<p>No curve: fewer than two steps were logged.</p>"
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0

    def place(number: int, loss: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * number / (len(losses) - 1)
        y = MARGIN + (HEIGHT - 2 * MARGIN) * (high - loss) / span
        return x, y

    spots = [place(number, loss) for number, loss in enumerate(losses)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    base, right = HEIGHT - MARGIN, WIDTH - MARGIN
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='loss per step'>"
        f"<path class='axis' d='M{MARGIN} {MARGIN}V{base}H{right}' fill='none'/>"
        f"<polyline class='line' points='{line}'/>"
        f"<text x='{MARGIN - 6}' y='{MARGIN + 4}' text-anchor='end'>{high:.2f}</text>"
        f"<text x='{MARGIN - 6}' y='{base + 4}' text-anchor='end'>{low:.2f}</text>"
        f"<text x='{MARGIN}' y='{base + 18}'>step 1</text>"
        f"<text x='{right}' y='{base + 18}' text-anchor='end'>step {len(losses)}</text></svg>"
    )
