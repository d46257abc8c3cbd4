"""Why a line is what it is: prefixes that come off, the signal that matches, and where near ones stop."""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.parse import parse_line
from schemas.signals import Match, Signal, SignalSet

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
    """Everything that is known of one line."""

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
    own = next((signal for signal in candidates if match is not None and signal.id == match.signal), None)
    fields = ("node", "rank", "local_rank", "task", "pid", "cuda_dev", "pg", "pg_rank", "process", "pod", "boot_ns")
    context = {name: str(getattr(parsed, name)) for name in fields if getattr(parsed, name) is not None}
    if parsed.stamp is not None:
        context["stamp"] = _stamp_words(parsed.stamp)
    return Explanation(
        line=line, wrappers=list(parsed.wrappers), context=context, body=parsed.body, match=match,
        units=_units(own) if own is not None else {},
        near=[_near(signal, parsed.body, match) for signal in candidates if signal is not own],
    )  # fmt: skip


def _stamp_words(stamp: object) -> str:
    has_year, has_zone = getattr(stamp, "has_year", False), getattr(stamp, "has_zone", False)
    missing = " and ".join(name for name, there in (("year", has_year), ("zone", has_zone)) if not there)
    resolution_ns = getattr(stamp, "resolution_ns", 0)
    said = f"{getattr(stamp, 'kind', '')}, to {resolution_ns / 1e9:g} s"
    return f"{said}; no {missing} in it" if missing else said


def _units(signal: Signal) -> dict[str, str]:
    kinds = {signal.renames.get(group, group): kind for group, kind in signal.types.items()}
    return {name: kind for name, kind in kinds.items() if kind not in ("text", "lower")}


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
