"""Signals, rules and explanations as text for a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.core.causes import Link, Rule
from pipeline.report.words import visible
from pipeline.rulebook.explain import Explanation
from pipeline.rulebook.unmatched import Shape, Unmatched
from schemas.signal_files import Override, Signal
from schemas.signals import SignalSet
from schemas.xid import XidMeaning, meaning_of

_INDENT: Final = "  "
_LINE_CHARACTERS: Final = 160


def listing(chosen: Sequence[Signal], causes: Sequence[Rule], known: SignalSet, width: int) -> str:
    """One line a signal, by file; then one line a cause rule."""
    files = {signal.id: name for name, file in known.files.items() for signal in file.signal}
    widest = max((len(signal.id) for signal in chosen), default=0)
    out, last = [], ""
    for signal in chosen:
        if files[signal.id] != last:
            last = files[signal.id]
            out.append(f"\n{last}  ({known.files[last].emitter})")
        line = f"{_INDENT}{signal.id:<{widest}}  {signal.event}  {signal.role}, {signal.severity}, {signal.label}"
        out.append(line + (f"  [{signal.status}]" if signal.status != "stable" else ""))
    if causes:
        out.append("\ncause rules")
        out += [f"{_INDENT}{rule.id}  {rule.class_}  ({rule.title})" for rule in causes]
    out.append(f"\n{len(chosen)} signals, {len(causes)} cause rules")
    return "\n".join(out).lstrip("\n") + "\n"


def in_full(one: Signal | Rule, known: SignalSet) -> str:
    """Everything that its file says of a signal or a rule."""
    return _rule(one) if isinstance(one, Rule) else _signal(one, known)


def _signal(signal: Signal, known: SignalSet) -> str:
    name, file = next((name, file) for name, file in known.files.items() if signal in file.signal)
    rows = [
        ("file", f"{name}.toml, checked against {file.checked_against}"),
        ("event", signal.event), ("is", f"{signal.role}, {signal.severity}, {signal.label}, scope {signal.scope}"),
        ("versions", f"{signal.versions or 'not said'} ({signal.status})"),
        ("hints", ", ".join(repr(hint) for hint in (*signal.hints, *signal.parts))),
        *(("pattern", pattern) for pattern in signal.patterns),
        *(("detail", pattern) for pattern in signal.details),
        ("attributes", ", ".join(f"{n} ({kind})" for n, kind in signal.kinds.items())),
        ("decoded", ", ".join(signal.decoded)),
        ("subject", ", ".join(f"{name} is {attribute}" for name, attribute in signal.subject.items())),
        ("always", ", ".join(f"{n} = {value}" for n, value in signal.sets.items())),
        *(("when", f"{attribute} = {value}: {_change(change)}") for attribute, values in signal.by.items()
          for value, change in values.items()),
        ("when", ", ".join(f"{attribute}: see {table}.toml" for attribute, table in signal.by_table.items())),
        ("further", "; ".join(_further(signal))),
        ("note", signal.note), ("references", ", ".join((*signal.references, *file.references))),
        *(("matches", example.line) for example in signal.matches),
        *(("not", miss.line) for miss in signal.misses),
    ]  # fmt: skip
    return f"{signal.id}\n{_rows(rows)}"


def xid(number: int, meaning: XidMeaning) -> str:
    """What an Xid number means and what to do about it."""
    rows = [
        ("meaning", meaning.meaning), ("symbol", meaning.name),
        ("is", f"{meaning.role}, {meaning.severity}, {meaning.label}, scope {meaning.scope}"),
        ("do", meaning.action), ("investigate", "" if meaning.investigate == "-" else meaning.investigate),
        ("application", f"{meaning.app_fault} (is it the first suspect?)"),
        ("note", "" if meaning.note == "-" else meaning.note), ("source", meaning.source),
    ]  # fmt: skip
    return f"Xid {number}\n{_rows(rows)}"


def _change(change: Override) -> str:
    parts = (("role", change.role), ("severity", change.severity), ("label", change.label), ("scope", change.scope))
    return ", ".join(f"{name} {value}" for name, value in parts if value)


def _further(signal: Signal) -> list[str]:
    """What else is done with its lines."""
    parts = [
        (signal.placement, "it says who runs where"),
        (signal.carries, f"carries {signal.carries}" + (", an event by itself too" if signal.keeps else "")),
        (signal.takes, f"takes {signal.takes}"),
        (signal.alone, "only one writer prints such records into a file"),
        (signal.repeats, "further lines take it too"),
        (signal.one_per_second, "one a second counts"), (signal.sampled, "a mark of progress: of many some are read"),
    ]  # fmt: skip
    return [text for is_so, text in parts if is_so]


def _rule(rule: Rule) -> str:
    rows = [
        ("class", rule.class_), ("title", f"{rule.title} (chain {rule.chain}, {rule.status})"),
        *(("root", f"{pattern.event} {_where(pattern.where)}") for pattern in rule.root),
        *(("before", _link(link)) for link in rule.before),
        *(("then", _link(link)) for link in rule.then),
        ("then also", ", ".join(rule.groups)),
        ("says", rule.explanation), ("do", f"{rule.action.kind} {rule.action.target}: {rule.action.why}"),
        ("not network", rule.not_network_because or ""),
        ("confidence", f"{rule.confidence:g}"), ("references", ", ".join(rule.references)),
        *(("story", f"{case.name}: {case.concludes or 'anything else'}") for case in rule.story),
    ]  # fmt: skip
    return f"{rule.id}\n{_rows(rows)}"


def _link(link: Link) -> str:
    return f"{link.event} {_where(link.where)}within {link.max_lag_s:g} s: {link.why}"


def _where(where: dict[str, list[str]]) -> str:
    return "".join(f"{name} = {'|'.join(values)} " for name, values in where.items())


def explained(said: Explanation) -> str:
    """An explanation: what came off, what it means, what was near."""
    rows = [
        ("prefixes", ", ".join(said.wrappers) or "none"),
        ("say", ", ".join(f"{name} {value}" for name, value in said.context.items())),
        ("body", said.body),
    ]
    if said.match is None:
        rows.append(("signal", "none reads it"))
    else:
        match = said.match
        values = (f"{name} = {value} {said.units.get(name, '')}".rstrip() for name, value in match.attributes.items())
        number = match.attributes.get("xid", "") if match.event == "gpu.xid" else ""
        meaning = meaning_of(int(number)) if number else None
        rows += [
            ("signal", f"{match.signal} (event {match.event})"),
            ("is", f"{match.role}, {match.severity}, {match.label}, scope {match.scope}"),
            ("captured", ", ".join(values)),
            ("meaning", f"{meaning.meaning}; do: {meaning.action}" if meaning is not None else ""),
            ("note", match.by.note),
        ]
        if match.carries or match.takes:
            rows.append(("record", "one line of several: they are put together by writer"))
    for near in said.near:
        rows.append(("near", f"{near.signal}: {near.hint!r} is in it; {near.why}"))
        if near.wanted:
            rows.append(("", f"fits up to {near.fits!r}, then wants {near.wanted}"))
    return f"{visible(said.line[:_LINE_CHARACTERS])}\n{_rows(rows)}\n"


def unmatched_text(found: Unmatched, limit: int) -> str:
    """Near misses, then unknown errors, most frequent first."""
    out = [f"{found.lines} lines looked at"]
    for title, shapes in (
        ("near misses: a hint is in them, and no pattern fits", found.near_misses),
        ("look like errors, and no signal knows them", found.unknown_errors),
    ):
        out.append(f"\n{title}: {sum(shape.count for shape in shapes)} lines of {len(shapes)} shapes")
        out += [text for shape in shapes[:limit] for text in _shape(shape)]
        if len(shapes) > limit:
            out.append(f"{_INDENT}… {len(shapes) - limit} more shapes (--limit)")
    if found.dropped_lines:
        out.append(f"\n{found.dropped_lines} lines of further shapes are not listed")
    return "\n".join(out) + "\n"


def _shape(shape: Shape) -> Iterable[str]:
    near = f"  near {', '.join(shape.signals[:3])}" if shape.signals else ""
    yield f"{_INDENT}{shape.count:>8}  {visible(shape.shape)[:_LINE_CHARACTERS]}"
    yield f"{_INDENT}{'':>8}  {visible(shape.source)}:{shape.line_no}{near}"


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    out = []
    for name, text in rows:
        if text.strip():
            pieces = textwrap.wrap(visible(text), 120, break_on_hyphens=False) or [""]
            out.append(f"{_INDENT}{name:<11} {pieces[0]}")
            out += [f"{_INDENT}{'':<11} {piece}" for piece in pieces[1:]]
    return "\n".join(out) + "\n"
