"""What a wheel carries."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_package_is_listed_for_the_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r'^  "(taskpack[\w.]*)",$', text, flags=re.MULTILINE))
    tools = ROOT / "tools"
    found = {
        ".".join(init.parent.relative_to(tools).parts)
        for init in (tools / "taskpack").rglob("__init__.py")
    }
    assert listed == found | {"taskpack._templates"}
