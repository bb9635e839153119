"""A check as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskpack.data.check import CheckReport

SHOWN_PER_KIND = 20
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
  border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
img { max-width: 12rem; max-height: 9rem; } svg { max-width: 100%; height: auto; }
svg text { font-size: 11px; fill: currentColor; } svg rect { fill: #2f6fd0; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """Frame parts of HTML as a page."""
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out a table; its cells are text."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = [f"<tr>{head}</tr>"] if any(heads) else []
    cells = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    lines += [f"<tr>{line}</tr>" for line in cells]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def write_page(path: Path, text: str) -> None:
    """Write a page; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_page(report: CheckReport, names: Sequence[str]) -> str:
    """Build the page of a check."""
    facts = [
        ("files", ", ".join(names)),
        ("rows", report.rows),
        ("good", report.good),
        ("bad", report.found.bad),
        ("longest good row", f"{report.longest} tokens" + ("" if report.exact else ", estimated")),
        ("cut in their text", report.cut_rows),
    ]
    parts = [table(("", ""), facts)]
    if report.problems:
        problems = [(problem.kind, problem.message) for problem in report.problems]
        parts += ["<h2>The set as a whole</h2>", table(("kind", "what"), problems)]
    for kind, count in sorted(report.found.counts.items()):
        first = [finding for finding in report.found.kept if finding.kind == kind]
        rows = [(f.file, f.row, f.line, f.byte, f.id or "", f.message) for f in first]
        shown = f", the first {SHOWN_PER_KIND}" if count > SHOWN_PER_KIND else ""
        heads = ("file", "row", "line", "byte", "id", "what")
        parts += [f"<h2>{count} {escape(kind)}{shown}</h2>", table(heads, rows[:SHOWN_PER_KIND])]
    return page("Check of a data set", parts)
