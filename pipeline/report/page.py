"""Lists of incidents as HTML, and the page that stands alone in a file."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from pipeline.report import words
from pipeline.report.article import Link, badges, culprits, render_article, time_tag
from pipeline.report.markup import Html, joined, tag
from schemas.records import Gap, Incident


def render_row(incident: Incident, link: Link) -> Html:
    """One incident in a list: what, where, what to do, and the line that started it."""
    started = incident.started_at or incident.detected_at
    root = next((step for step in incident.chain if step.role == "root"), None)
    return tag(
        "li",
        tag("div", badges(incident), tag("p", time_tag(started) or "time not known", class_="when"), class_="meta"),
        tag("h2", tag("a", words.headline(incident), href=link(words.name_of(incident)))),
        culprits(incident),
        tag("p", incident.explanation, class_="sentence") if incident.explanation else None,
        tag("p", tag("b", "Do now "), f"{words.do_now(incident.action)}.", class_="do-line"),
        tag("p", tag("code", words.shortened(root.evidence.text, 240)), class_="root-line") if root else None,
        tag("p", _fine_print(incident), class_="quiet"),
        class_=f"row {incident.severity} is-{incident.state}",
        data_key=words.name_of(incident),
        data_revision=incident.revision,
    )


def _fine_print(incident: Incident) -> str:
    unwatched = len(words.not_watched(incident.coverage)) + len(incident.gaps)
    parts = [
        words.job_line(incident),
        words.reach_line(incident),
        incident.cluster,
        incident.class_,
        f"{words.counted(unwatched, 'thing')} not watched" if unwatched else "",
    ]
    return " · ".join(part for part in parts if part)


@cache
def style_sheet() -> str:
    """The one style sheet, for light and dark."""
    return (files("pipeline") / "web" / "static" / "rootrank.css").read_text(encoding="utf-8")


def render_html(incidents: Sequence[Incident], gaps: Sequence[Gap], notes: Sequence[str]) -> str:
    """A page that needs nothing else: no script, no other file, and a policy that forbids both."""
    style = style_sheet()
    policy = f"default-src 'none'; style-src 'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", _title(incidents)),
        Html(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("header", tag("span", "rootrank", class_="brand"), tag("span", "post-mortem"), class_="bar"),
        tag("main", _overview(incidents), *_articles(incidents), *_remarks(gaps, notes), class_="page"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _title(incidents: Sequence[Incident]) -> str:
    if not incidents:
        return "No incident found"
    first = f"{words.headline(incidents[0])}: {words.culprit_line(incidents[0])}"
    return first if len(incidents) == 1 else f"{first} (and {len(incidents) - 1} more)"


def _anchor(incident_id: str) -> str:
    return f"#incident-{incident_id}"


def _overview(incidents: Sequence[Incident]) -> Html:
    if not incidents:
        return tag("h1", "No incident found")
    if len(incidents) == 1:
        return joined()
    return tag("ol", *(render_row(incident, _anchor) for incident in incidents), class_="feed")


def _articles(incidents: Sequence[Incident]) -> list[Html]:
    here = {incident.incident_id for incident in incidents}
    return [render_article(i, lambda name: _anchor(name) if name in here else None) for i in incidents]


def _remarks(gaps: Sequence[Gap], notes: Sequence[str]) -> list[Html]:
    parts = (("Seen, and not an incident", list(notes)), ("Not read or lost", [words.gap_line(gap) for gap in gaps]))
    return [
        tag("section", tag("h2", title), tag("ul", *(tag("li", line) for line in lines)), class_="remarks")
        for title, lines in parts
        if lines
    ]
