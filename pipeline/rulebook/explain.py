"""Why a line is what it is: prefixes that come off, the signal that matches, and where near ones stop."""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.parse import parse_line
from pipeline.core.stamps import Stamp
from schemas.signal_files import Signal
from schemas.signals import Match, SignalSet
from schemas.values import UNITS

# What the pattern still wanted, of a pattern that did not match.
_WANTED_CHARACTERS: Final = 60
_ENDED_CHARACTERS: Final = 40


class Near(Struct, frozen=True, kw_only=True):
    """A signal whose hint is in the line and whose pattern does not fit, or that another signal came before.

    `fits`: what the beginning of the pattern matched; `wanted`: how the pattern goes on there.
    """

    signal: str
    event: str
    hint: str
    why: str
    fits: str = ""
    wanted: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that is known of one line. `context`: what its prefixes say; `units`: those of its attributes."""

    line: str
    wrappers: list[str]
    context: dict[str, str]
    body: str
    match: Match | None
    units: dict[str, str]
    near: list[Near]


def shape(said: Explanation) -> dict[str, Any]:
    """An explanation as plain values."""
    match = said.match
    read = match and {
        "signal": match.signal, "event": match.event, "role": match.role, "severity": match.severity,
        "label": match.label, "scope": match.scope, "attributes": match.attributes,
    }  # fmt: skip
    return {**msgspec.to_builtins(msgspec.structs.replace(said, match=None)), "match": read}


def explain(line: str, signals: SignalSet) -> Explanation:
    """Explain one line."""
    parsed = parse_line(line.rstrip("\r\n"))
    match = signals.match(parsed.body)
    candidates = signals.candidates(parsed.body)
    own = None if match is None else match.by
    fields = ("node", "rank", "local_rank", "task", "pid", "cuda_dev", "pg", "pg_rank", "process", "pod", "boot_ns")
    context = {name: str(getattr(parsed, name)) for name in fields if getattr(parsed, name) is not None}
    if parsed.stamp is not None:
        context["stamp"] = _stamp_words(parsed.stamp)
    return Explanation(
        line=line, wrappers=list(parsed.wrappers), context=context, body=parsed.body, match=match,
        units={} if own is None else {name: kind for name, kind in own.kinds.items() if kind in UNITS},
        near=[_near(signal, parsed.body, match) for signal in candidates if signal is not own],
    )  # fmt: skip


def _stamp_words(stamp: Stamp) -> str:
    there = {"date": stamp.has_date, "year": stamp.has_year, "zone": stamp.has_zone}
    missing = " and ".join(name for name, is_there in there.items() if not is_there)
    said = f"{stamp.kind}, to {stamp.resolution_ns / 1e9:g} s"
    return f"{said}; no {missing} in it" if missing else said


def _near(signal: Signal, body: str, match: Match | None) -> Near:
    hint = next(literal for literal in (*signal.hints, *signal.parts) if literal in body)
    if any(re.search(pattern, body, re.ASCII) for pattern in signal.patterns):
        first = match.signal if match is not None else ""
        return Near(signal=signal.id, event=signal.event, hint=hint, why=f"it fits too; {first} comes before it")
    fits, wanted = max((_fit(pattern, body) for pattern in signal.patterns), key=lambda pair: len(pair[0]))
    return Near(
        signal=signal.id, event=signal.event, hint=hint, why="its pattern does not fit", fits=fits, wanted=wanted
    )


def _fit(pattern: str, body: str) -> tuple[str, str]:
    """The longest text that a beginning of the pattern matches, and how the pattern goes on."""
    for end in range(len(pattern) - 1, 0, -1):
        try:
            found = re.search(pattern[:end], body, re.ASCII)
        except (re.error, RecursionError):
            continue
        if found is not None and found[0]:
            return found[0][-_ENDED_CHARACTERS:], pattern[end : end + _WANTED_CHARACTERS]
    return "", pattern[:_WANTED_CHARACTERS]
