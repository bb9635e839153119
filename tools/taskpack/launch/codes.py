"""Codes and exceptions that no signature knows, read by their parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from taskpack.launch.signature import Kind

_ERR = re.compile(r"\bERR(\d{2})(\d{3})\b")
_CANN = re.compile(r"\b(E[A-Z])(\d{4})\b(?=:|\b)")
_MODULES: Mapping[str, str] = {
    "00": "torch_npu", "01": "an operator", "02": "communication", "03": "a graph",
    "04": "the profiler", "99": "an unknown part",
}  # fmt: skip
_CAUSES: Mapping[str, str] = {
    "001": "a wrong argument", "002": "a wrong type", "003": "a wrong value",
    "004": "a null pointer", "005": "an internal error", "006": "memory", "007": "not supported",
    "008": "not found", "009": "not available", "010": "a system call", "011": "a timeout",
    "012": "a permission",
}  # fmt: skip
_PARTS: Mapping[str, str] = {
    "EI": "HCCL, communication", "EJ": "HCCP, the NPU's network process", "EL": "the driver",
    "EE": "the runtime", "EZ": "an operator", "EH": "ACL, the interface of CANN",
    "EK": "the profiler",
}  # fmt: skip

EXCEPTIONS_OF_NO_INTEREST = ("ChildFailedError",)
"""What torchrun raises after the ranks ended; its report is read by itself."""

_ADVICE: Mapping[str, tuple[str, str]] = {
    "KeyError": (
        "a key is not where the code looks for it: a column of the rows, or a key of model.json",
        "compare data.json and the rows (taskpack data check); render for the release in use",
    ),
    "AssertionError": (
        "the trainer found settings or shapes that do not fit together",
        "read the line that asserts; taskpack plan TASK checks what is known of them",
    ),
    "AttributeError": (
        "an object lacks that name: mostly a package of another version",
        "taskpack doctor --task TASK compares the versions with the release",
    ),
    "TypeError": (
        "a call does not take these arguments: mostly a package of another version",
        "taskpack doctor --task TASK compares the versions with the release",
    ),
    "IndexError": (
        "something is shorter than the code takes it to be: a list of layers, or rows with "
        "data.max_samples above their number",
        "taskpack plan TASK --data FILE compares both",
    ),
    "ValueError": (
        "the code met a value that it refuses; in the data, often pictures and marks that differ "
        "in number",
        "read the message; taskpack data check --task TASK looks at every row",
    ),
    "KeyboardInterrupt": ("somebody stopped the run", "start it again"),
    "SignalException": (
        "torchrun was told to stop: by the platform, a user, or another node's launcher",
        "look at the other nodes' logs and the platform's events",
    ),
}


@dataclass(frozen=True, slots=True)
class Code:
    """A code in a line."""

    name: str
    kind: Kind
    why: str
    fix: str


def any_code(text: str) -> Code | None:
    """Read a code of torch_npu or CANN that has no signature of its own."""
    if match := _ERR.search(text):
        module, cause = match[1], match[2]
        part = _MODULES.get(module, f"part {module}")
        return Code(
            match[0],
            "symptom" if cause in _CAUSES else "wrapper",
            f"torch_npu reports from {part}: {_CAUSES.get(cause, 'a call below it failed')}",
            "read the traceback of that rank and the codes of CANN near it",
        )
    if (match := _CANN.search(text)) and match[1] in _PARTS:
        return Code(
            match[0],
            "symptom",
            f"CANN reports from {_PARTS[match[1]]}",
            "read the text behind the code, and the plog folder (~/ascend/log) of that rank",
        )
    return None


def exception_advice(name: str) -> tuple[str, str]:
    """Say why such an exception is mostly raised, and what to do."""
    known = _ADVICE.get(name.rpartition(".")[2])
    return known or (
        "Python code stopped with an exception that nothing caught",
        "read its message and the line where it was raised",
    )
