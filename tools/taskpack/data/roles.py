"""Spellings of roles, once for every format."""

from __future__ import annotations

SPELLINGS = {
    "user": ("user", "human", "prompter", "question", "input"),
    "assistant": (
        "assistant",
        "gpt",
        "bot",
        "model",
        "chatgpt",
        "bard",
        "bing",
        "answer",
        "output",
    ),
    "system": ("system", "developer", "context"),
}
ROLES = {name: role for role, names in SPELLINGS.items() for name in names}
TOOL_ROLES = frozenset({"tool", "function", "function_call", "tool_call", "observation",
                        "tool_response", "function_response"})  # fmt: skip
LLAVA_ROLES = {"human": "user", "gpt": "assistant", "system": "system"}
