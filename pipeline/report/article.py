"""One incident as HTML: one sentence and what to do first, the proof below. The same on the web page and in a file."""

from collections.abc import Callable, Sequence
from typing import Final

from pipeline.report import words
from pipeline.report.legend import legend
from pipeline.report.markup import Html, fragment, joined, tag
from pipeline.report.timeline import render_timeline, symbol
from schemas.records import Alternative, ChainStep, Culprit, Incident

Link = Callable[[str], str | None]
"""From an incident's id to the address of its page or place; None where it has none."""

_WIDE: Final = ("Sure", "Stands", "Labels")


def render_article(incident: Incident, link: Link) -> Html:
    """The whole incident."""
    return tag(
        "article",
        _head(incident),
        tag("div", _action(incident), _why_unknown(incident), _not_watched(incident), class_="lead"),
        _timeline(incident),
        _chain(incident),
        tag("div", _not_network(incident), _alternatives(incident), class_="columns"),
        _facts(incident),
        _related(incident, link),
        class_=f"incident {incident.severity}",
        id=f"incident-{incident.incident_id}",
    )


def badges(incident: Incident) -> Html:
    """Severity, state and origin as words; colour only repeats them."""
    final = "final" if incident.verdict == "settled" else "may still change"
    # A post-mortem is worked out from all that was given, and nobody closes it.
    is_news = incident.run != "post_mortem"
    return tag(
        "p",
        tag("strong", incident.severity, class_="severity"),
        tag("span", incident.state, class_=f"badge state-{incident.state}") if is_news else None,
        tag("span", final, class_=f"badge {incident.verdict}") if is_news else None,
        tag("span", incident.run.replace("_", "-"), class_="badge run") if incident.run != "live" else None,
        tag("span", "synthetic", class_="badge run") if incident.synthetic else None,
        class_="badges",
    )


def culprits(incident: Incident) -> Html:
    """Who did it, and how sure that is."""
    if not incident.culprits:
        sure = f"{words.percent(incident.confidence)} sure of the class"
        return tag("p", tag("strong", "No culprit named"), " ", tag("span", sure, class_="sure"), class_="culprit none")
    shown = incident.culprits[: words.LIST_LIMIT]
    rest = len(incident.culprits) - len(shown)
    return joined(
        *(_culprit(c, c.confidence or incident.confidence) for c in shown),
        tag("p", f"… and {words.grouped(rest)} more", class_="culprit none") if rest else None,
    )


def time_tag(when: str | None, *, on_day: str = "") -> Html | None:
    """A moment that a script may show as an age."""
    if when is None:
        return None
    return tag("time", words.clock(when, on_day=on_day), datetime=when)


def _culprit(culprit: Culprit, confidence: float) -> Html:
    return tag(
        "p",
        tag("strong", words.place(culprit)),
        " ",
        tag("span", f"{words.percent(confidence)} sure", class_="sure"),
        class_="culprit",
    )


def _head(incident: Incident) -> Html:
    started = incident.started_at or incident.detected_at
    return tag(
        "header",
        badges(incident),
        tag("h1", words.headline(incident)),
        culprits(incident),
        tag("p", incident.explanation, class_="sentence") if incident.explanation else None,
        _identifiers(incident),
        tag(
            "p",
            "Started ",
            time_tag(started) or "at a time not known",
            f" UTC {words.error(incident.started_error_ns)}" if started else None,
            class_="started",
        ),
    )


def _identifiers(incident: Incident) -> Html:
    """What the parts are called, for whoever must find them: of several culprits, whose each is."""
    shown = incident.culprits[: words.LIST_LIMIT]
    return joined(
        *(
            tag(
                "p",
                tag("b", words.place(culprit)) if len(shown) > 1 else None,
                *(tag("span", f"{noun} ", tag("code", value)) for noun, value in found),
                class_="identifiers",
            )
            for culprit in shown
            if (found := words.identifiers(culprit))
        )
    )


def _action(incident: Incident) -> Html:
    action = incident.action
    return tag(
        "section",
        tag("h2", "Do now"),
        tag("p", tag("strong", words.do_now(action) + "."), f" {words.sentence(action.why)}" if action.why else None),
        *(tag("pre", line) for line in action.commands),
        _recovery(incident),
        _reference_line(action.reference),
        class_="do",
    )


def _recovery(incident: Incident) -> Html | None:
    line = words.recovery_line(incident.recovery)
    return tag("p", f"{line}.") if line else None


def _reference_line(reference: str) -> Html | None:
    return tag("p", f"{words.see(reference)} ", _reference(reference), class_="quiet") if reference else None


def _reference(reference: str) -> Html:
    # Only web addresses become links: a reference may come from a rule file that others wrote.
    if not reference.startswith(("https://", "http://")):
        return tag("code", reference)
    return tag("a", reference, href=reference, rel="noreferrer noopener")


def _why_unknown(incident: Incident) -> Html | None:
    if not incident.why_unknown:
        return None
    return tag(
        "section", tag("h2", "What would decide it"), tag("p", words.sentence(incident.why_unknown)), class_="question"
    )


def _step_name(incident: Incident, number: int) -> str:
    return f"step-{incident.incident_id}-{number}"


def _timeline(incident: Incident) -> Html | None:
    drawing = render_timeline(incident, lambda number: fragment(_step_name(incident, number)))
    if drawing is None:
        return None
    day = words.first_day(incident)
    return tag(
        "section",
        tag("h2", "Timeline", tag("small", f"{day} UTC") if day else None),
        tag("figure", tag("div", drawing, class_="scroll"), legend(incident)),
        class_="timeline-part",
    )


def _chain(incident: Incident) -> Html | None:
    if not incident.chain:
        return None
    day = words.first_day(incident)
    because = words.because(incident)
    folded = incident.suppressed.count
    return tag(
        "section",
        tag("h2", "How it went", tag("small", f"{day} UTC") if day else None),
        tag("ol", *(_step(step, because.get(step.step, []), day, incident) for step in incident.chain), class_="chain"),
        tag("p", _suppressed(incident), class_="quiet") if folded else None,
        class_="proof",
    )


def _suppressed(incident: Incident) -> str:
    by_event = sorted(incident.suppressed.by_event.items(), key=lambda item: (-item[1], item[0]))
    detail = ", ".join(f"{words.grouped(count)} {event}" for event, count in by_event)
    total = words.counted(incident.suppressed.count, "line")
    return f"{total} that repeat this are folded away{f': {detail}' if detail else ''}."


def _step(step: ChainStep, because: Sequence[str], day: str, incident: Incident) -> Html:
    return tag(
        "li",
        tag("span", words.ROLE_WORDS[step.role], class_="role"),
        symbol(step.role, step.step),
        tag(
            "div",
            tag("p", *_step_head(step, day), class_="step-head"),
            tag("pre", words.shortened(step.evidence.text)),
            tag("p", *_step_foot(step, because), class_="quiet"),
        ),
        class_=f"step {step.role}",
        id=_step_name(incident, step.step),
    )


def _step_head(step: ChainStep, day: str) -> list[Html | None]:
    lag = words.lag(step.lag_ns) if step.role != "root" else ""
    return [
        tag("strong", words.short(step.where), class_="where"),
        time_tag(step.when, on_day=day) or tag("span", "time not known"),
        tag("span", words.error(step.error_ns), class_="error") if step.error_ns is not None else None,
        tag("span", lag, class_="lag") if lag else None,
        tag("span", f"×{words.grouped(step.count)}", class_="count") if step.count > 1 else None,
        tag("span", words.rank_list(step.ranks)) if len(step.ranks) > 1 else None,
    ]


def _step_foot(step: ChainStep, because: Sequence[str]) -> list[Html]:
    found = step.evidence
    told = [tag("span", sentence, class_="because") for sentence in because]
    return [tag("code", words.address(found.source, found.line_no, found.offset)), *told]


def _listed(title: str, lines: Sequence[str], class_: str) -> Html | None:
    if not lines:
        return None
    return tag("section", tag("h2", title), tag("ul", *(tag("li", line) for line in lines)), class_=class_)


def _not_watched(incident: Incident) -> Html | None:
    return _listed("Not watched", words.unwatched_lines(incident), "unwatched")


def _not_network(incident: Incident) -> Html | None:
    return _listed("Why not the network", [t for t in [incident.not_network_because] if t], "not-network")


def _alternatives(incident: Incident) -> Html | None:
    return _listed("Considered, less likely", [_alternative(a) for a in incident.alternatives], "alternatives")


def _alternative(alternative: Alternative) -> str:
    where = f", {words.listed([words.place(c) for c in alternative.culprits])}" if alternative.culprits else ""
    why = f": {alternative.why_less_likely}" if alternative.why_less_likely else ""
    return f"{words.class_words(alternative.class_)} ({words.percent(alternative.confidence)}){where}{why}"


def _facts(incident: Incident) -> Html:
    facts = (
        ("Job", words.job_line(incident)),
        ("Reach", words.reach_line(incident)),
        ("Stopped", f"{incident.interruption}, in phase {incident.phase.replace('_', ' ')}"),
        ("Stalled since", words.clock(incident.stall_started_at)),
        ("Detected", words.clock(incident.detected_at)),
        ("Ended", words.clock(incident.ended_at)),
        ("Watched", ", ".join(words.watched(incident.coverage))),
        ("Sure", words.sure_line(incident)),
        ("Stands", words.standing(incident)),
        ("Class", incident.class_),
        ("Cluster", incident.cluster),
        ("Incident", incident.incident_id),
        ("Engine", f"{incident.engine.version}, rules {incident.engine.rules_digest[:12]}"),
        ("Labels", ", ".join(incident.labels)),
    )
    pairs = (
        tag("div", tag("dt", name), tag("dd", value), class_="wide" if name in _WIDE else None)
        for name, value in facts if value
    )  # fmt: skip
    return tag("section", tag("h2", "Facts"), tag("dl", *pairs), class_="facts")


def _related(incident: Incident, link: Link) -> Html | None:
    related = [(r.incident_id, r.why) for r in incident.related]
    if incident.superseded_by:
        related.insert(0, (incident.superseded_by, "replaces this incident"))
    if not related:
        return None
    items = (tag("li", _linked(name, link(words.name_of(incident, name))), f": {why}") for name, why in related)
    return tag("section", tag("h2", "Related"), tag("ul", *items), class_="related")


def _linked(name: str, address: str | None) -> Html:
    return tag("code", name) if address is None else tag("a", name, href=address)
