"""What is wrong with signals and cause rules: their own tests, and what a reader of them may expect."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pipeline.core import derived
from pipeline.core.causes import RuleSet
from pipeline.rulebook.stories import story_problem
from schemas.signal_files import Signal
from schemas.signals import SignalSet

MIN_HINT: Final = 3


class Problem(Struct, frozen=True, kw_only=True):
    """One finding: the file, the id of the signal or rule, the field, and what is wrong."""

    file: str
    id: str
    field: str
    text: str


def played_signals(known: SignalSet, wanted: set[str]) -> Iterator[Problem]:
    """Play the examples and near misses of the wanted signals (all where none is named)."""
    for name, file in known.files.items():
        for signal in file.signal:
            if not wanted or {signal.id, signal.event, name} & wanted:
                yield from _played(name, signal, known)


def played_rules(rules: RuleSet, wanted: set[str]) -> Iterator[Problem]:
    """Play the stories of the wanted cause rules (all where none is named)."""
    for rule in rules.rules:
        for case in rule.story if not wanted or rule.id in wanted else []:
            if problem := story_problem(rule, case):
                yield Problem(file=f"{rule.id}.toml", id=rule.id, field=f"story {case.name!r}", text=problem)


def lint(known: SignalSet, rules: RuleSet) -> Iterator[Problem]:
    """What loads and still should not stay so."""
    events = {signal.event for signal in known.signals} | derived.EVENTS
    for name, file in known.files.items():
        for field in ("emitter", "checked_against"):
            if not getattr(file, field).strip():
                yield Problem(file=f"{name}.toml", id="", field=field, text="is empty; say it")
        if not file.references:
            yield Problem(file=f"{name}.toml", id="", field="references", text="are missing; name the source")
        for signal in file.signal:
            yield from _linted(f"{name}.toml", signal)
    for rule in rules.rules:
        named = {pattern.event for pattern in rule.root} | {link.event for link in (*rule.before, *rules.effects(rule))}
        for event in sorted(named - events):
            yield Problem(file=f"{rule.id}.toml", id=rule.id, field="event", text=f"no signal gives {event}")
        if sum(bool(case.concludes) for case in rule.story) < 1 or len(rule.story) < 3:
            wanted = "one story that concludes the class and two near ones are wanted"
            yield Problem(file=f"{rule.id}.toml", id=rule.id, field="story", text=wanted)


def _linted(file: str, signal: Signal) -> Iterator[Problem]:
    if not signal.versions:
        yield Problem(file=file, id=signal.id, field="versions", text="are missing; say which releases print it")
    for example in signal.matches:
        if not any(literal in example.line for literal in (*signal.hints, *signal.parts)):
            yield Problem(file=file, id=signal.id, field="hints", text=f"none is in {example.line[:80]!r}")

    for pattern in signal.patterns:
        if repeated := _endless(pattern):
            text = f"{repeated} repeats without an end; write {{1,200}} or so, as log text is anybody's"
            yield Problem(file=file, id=signal.id, field="pattern", text=text)
    for hint in signal.hints:
        if len(hint) < MIN_HINT and signal.role != "noise":
            yield Problem(
                file=file, id=signal.id, field="hints", text=f"{hint!r} is in too many lines; take a longer one"
            )


def _endless(pattern: str) -> str:
    """A repetition inside the pattern that may go on for ever, nested in another one; empty where there is none."""
    found = re.search(r"\((?:[^()\\]|\\.)*[^\\(][+*](?:[^()\\]|\\.)*\)[+*{]", pattern)
    return found[0] if found else ""


def _played(name: str, signal: Signal, known: SignalSet) -> Iterator[Problem]:
    def problem(field: str, text: str) -> Problem:
        return Problem(file=f"{name}.toml", id=signal.id, field=field, text=text)

    for number, example in enumerate(signal.matches, 1):
        match, field = known.match(example.line), f"matches {number}"
        if match is None:
            yield problem(field, f"no signal matches {example.line[:80]!r}")
        elif match.signal != signal.id:
            yield problem(field, f"{match.signal} takes {example.line[:80]!r} first")
        elif match.attributes != example.gives:
            yield problem(field, f"gives {match.attributes}, wanted {example.gives}")
        elif example.role not in (None, match.role) or example.label not in (None, match.label):
            yield problem(field, f"is {match.role} {match.label}, wanted {example.role} {example.label}")
    for number, miss in enumerate(signal.misses, 1):
        match = known.match(miss.line)
        if match is not None and match.signal == signal.id:
            yield problem(f"misses {number}", f"matches {miss.line[:80]!r}, and should not")
