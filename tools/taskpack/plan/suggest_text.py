"""Suggested layouts as text and as data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from taskpack.plan.memory import GIB
from taskpack.plan.suggest import Suggestion
from taskpack.plan.tables import table
from taskpack.profile import Profile


def suggestions_json(found: Sequence[Suggestion], own: Suggestion) -> dict[str, Any]:
    """Give layouts as plain data, with the profile's own beside them."""
    best = found[0].speed.samples
    return {
        "model": own.profile.model,
        "tuning": own.profile.tuning.mode,
        "hbm": own.hbm,
        "npus": found[0].profile.world_size,
        "suggestions": [_record(one, best) for one in found],
        "profile": _record(own, best),
        "next": _command(found[0], own),
    }


def _record(one: Suggestion, best: float) -> dict[str, Any]:
    profile = one.profile
    return {
        "tp": profile.parallel.tp,
        "pp": profile.parallel.pp,
        "cp": profile.parallel.cp,
        "dp": profile.dp,
        "global_batch": profile.global_batch,
        "npus": profile.world_size,
        "memory": one.fullest.to_json(),
        "fits": one.fits,
        "may_fit": one.may_fit,
        "relative_speed": one.speed.samples / best,
        "why": one.why,
        "set": one.settings,
    }


def suggestions_text(found: Sequence[Suggestion], own: Suggestion) -> str:
    """Lay layouts out for reading."""
    first, profile = found[0].profile, own.profile
    best = found[0].speed.samples
    head = ("", "TP", "PP", "CP", "DP", "micro", "accum", "recompute", "GiB", "band", "speed", "")
    rows = [head, _row("own", own, best)]
    rows += [_row(str(number), one, best) for number, one in enumerate(found, 1)]
    lines = [
        f"{profile.model}, {profile.tuning.mode}: layouts for {first.platform.nodes} x "
        f"{first.platform.npus_per_node} NPUs of {own.hbm // GIB} GiB, "
        f"{profile.train.seq_length:,} tokens, about {profile.global_batch:,} samples a step",
        "",
        *table(rows, right=set(range(1, 11)) - {7, 9}),
        "",
    ]
    for name, one in (("own", own), *((str(n), one) for n, one in enumerate(found, 1))):
        lines.append(f"{name:>3}  text {_layers(one.profile)}; {one.why}")
    if own.profile.world_size != first.world_size:
        lines.append(f"     own is on {own.profile.world_size} NPUs")
    return "\n".join(
        [
            *lines,
            "",
            "GiB: the fullest stage, estimated; speed: against the first, from counted operations, "
            "pipeline waiting",
            "and one published pair for TP; not measured.",
            "",
            f"  {_command(found[0], own)}",
        ]
    )


def _row(name: str, one: Suggestion, best: float) -> tuple[str, ...]:
    profile = one.profile
    parallel = profile.parallel
    return (
        name,
        str(parallel.tp),
        str(parallel.pp),
        str(parallel.cp),
        str(profile.dp),
        str(profile.batch.micro),
        str(profile.accumulation),
        profile.train.recompute,
        f"{one.fullest.total / GIB:.1f}",
        f"{one.fullest.low / GIB:.1f} to {one.fullest.high / GIB:.1f}",
        f"{one.speed.samples / best:.2f}",
        "fits" if one.fits else "tight" if one.may_fit else "too large",
    )


def _layers(profile: Profile) -> str:
    return json.dumps(profile.parallel.text.to_lists())


def _command(one: Suggestion, own: Suggestion) -> str:
    """Give the command that plans with a layout, as one line of what differs from the profile."""
    words = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in one.settings.items()
        if value != own.settings[key]
    ]
    given = "".join(f" --set {shlex.quote(word)}" for word in words)
    return f"taskpack plan {one.profile.model}{given}"
