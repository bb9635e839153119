"""Rendering: one profile in, the files of its task out."""

from taskpack.render.files import check_pack, check_task, rendered_pack, rendered_task
from taskpack.render.write import render_pack, render_task

__all__ = [
    "check_pack",
    "check_task",
    "render_pack",
    "render_task",
    "rendered_pack",
    "rendered_task",
]
