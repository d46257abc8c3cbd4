"""What is known of a job as text for a terminal. Log text is spelled out, never obeyed."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pipeline.core.source_reader import FIRST_SIGHT_NS
from pipeline.report import words
from pipeline.why import AttemptKnown, Known, Mark
from schemas.records import Incident

_LINE: Final = 200
MINUTE_NS: Final = 60_000_000_000


def why_lines(known: Known) -> Iterator[str]:
    """The lines, without line ends."""
    yield f"job {words.short(known.job)}"
    for attempt in known.attempts:
        yield from _attempt(attempt)
    if known.not_known:
        yield "not known"
        for one in known.not_known:
            yield f"  - {words.visible(one)}"


def _attempt(one: AttemptKnown) -> Iterator[str]:
    yield f"attempt {one.attempt}  cluster {words.short(one.cluster)}"
    if one.nodes:
        yield _named("nodes", f"{len(one.nodes)}: {words.listed([words.short(node) for node in one.nodes])}")
    if one.lines is not None:
        span = f"{words.clock(one.first_at)} to {words.clock(one.last_at)} UTC, " if one.first_at else ""
        errors = words.counted(one.error_lines or 0, "error")
        yield _named("heard", f"{span}{words.counted(one.lines, 'line')} that mean something, {errors}")
    if one.old_lines:
        yield _named("old", _old(one.old_lines))
    for mark in one.progress[:1]:
        yield _named("got to", _mark(mark))
    for mark in one.endings[:3]:
        yield _named("ended", _mark(mark))
    for note in one.notes:
        yield _named("note", f"{words.class_words(note.class_)}: {words.visible(note.explanation)}")
        yield from (_named("", words.shortened(step.evidence.text, _LINE)) for step in note.chain[:1])
    for incident in one.incidents:
        yield from _incident(incident)
    if not one.incidents:
        yield _named("incident", "none" + ("; the last lines that look like errors are" if one.errors else ""))
        for mark in one.errors[:3]:
            yield _named("", _mark(mark))
    if one.coverage:
        yield _named("watched", _watched(one))
        for reading in one.coverage:
            for refused in reading.refused[:3]:
                yield _named("not read", f"{words.short(reading.node)}: {words.short(refused)}")
    for missing in one.not_known:
        yield _named("not known", words.visible(missing))


def _old(count: int) -> str:
    are = "line is" if count == 1 else "lines are"
    return (
        f"{count} {are} older than {FIRST_SIGHT_NS // MINUTE_NS} minutes at first sight: recorded, no incident is made "
        "of them; `rootrank diagnose` on the files says what happened"
    )


def _incident(incident: Incident) -> Iterator[str]:
    sure = words.percent(incident.confidence)
    yield _named("incident", f"{words.headline(incident)}: {words.culprit_line(incident)}  {sure} sure")
    yield _named("", words.visible(incident.explanation))
    yield _named("", f"Do now: {words.do_now(incident.action)}.")
    facts = (incident.incident_id, incident.class_, incident.verdict, incident.state)
    yield _named("", "  ".join(words.short(fact) for fact in facts))
    for unseen in words.unwatched_lines(incident):
        yield _named("", unseen)


def _mark(mark: Mark) -> str:
    who = f"rank {mark.rank} on {words.short(mark.node)}" if mark.rank is not None else words.short(mark.node)
    when = f"{words.clock(mark.at)} UTC  " if mark.at else ""
    return f"{when}{who}: {words.shortened(mark.text, _LINE)}  ({words.address(mark.source, mark.line_no, None)})"


def _watched(one: AttemptKnown) -> str:
    """Per kind of source, on how many of the attempt's nodes it is read."""
    counts = Counter(kind for reading in one.coverage for kind in reading.kinds)
    kinds = [f"{words.short(kind)} on {counts[kind]} of {len(one.coverage)} nodes" for kind in sorted(counts)]
    through = min((reading.read_through for reading in one.coverage if reading.read_through), default=None)
    return ", ".join(kinds or ["nothing"]) + (f"; read through {words.clock(through)} UTC" if through else "")


def _named(name: str, text: str) -> str:
    return f"  {name:<10}{text}"
