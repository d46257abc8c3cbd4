"""What the shapes and lines of a timeline mean: only those that this one has."""

from typing import Final

from pipeline.report import words
from pipeline.report.markup import Html, tag
from pipeline.report.timeline import MAX_MARKS, symbol
from schemas.records import Incident

_LINES: Final = {
    "certain": "leads to, order certain",
    "probable": "leads to, order probable",
    "concurrent": "leads to, clocks cannot order them",
}


def legend(incident: Incident) -> Html:
    """The caption of the timeline."""
    steps = incident.chain[:MAX_MARKS]
    roles = {step.role for step in steps}
    orders = {edge.order for edge in incident.edges}
    entries = [_entry(symbol(role), said) for role, said in words.ROLE_WORDS.items() if role in roles]
    entries += [_entry(_sample_line(order), said) for order, said in _LINES.items() if order in orders]
    if any(step.error_ns for step in steps):
        entries.append(_entry(_sample_bar("symptom"), "as wide as the time is uncertain"))
    if any(step.when is None for step in steps) and any(step.when for step in steps):
        entries.append(_entry(_sample_bar("untimed"), "time not known, drawn in the order of telling"))
    if len({step.when for step in steps if step.when}) > 1:
        entries.append(tag("li", "The axis is not to scale: the time between is written on it."))
    if len(incident.chain) > len(steps):
        entries.append(tag("li", f"The first {len(steps)} steps of {words.grouped(len(incident.chain))}."))
    return tag("figcaption", tag("ul", *entries))


def _entry(sample: Html, said: str) -> Html:
    return tag("li", sample, said)


def _sample(*parts: Html) -> Html:
    return tag("svg", *parts, viewBox="0 0 34 28", width=29, height=24, aria_hidden="true", class_="timeline sample")


def _sample_line(order: str) -> Html:
    line = tag("path", d="M2 14H26", class_="line", fill="none")
    return _sample(tag("g", line, tag("path", d="M32 14l-7 -3.5v7z", class_="head"), class_=f"edge {order}"))


def _sample_bar(kind: str) -> Html:
    if kind == "untimed":
        return _sample(tag("path", d="M2 14H32", class_="bar untimed"))
    return _sample(tag("rect", x=2, y=9, width=30, height=10, rx=5, class_=f"bar {kind}"))
