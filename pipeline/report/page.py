"""Lists of incidents as HTML, and the page that stands alone in a file."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from pipeline import VERSION
from pipeline.notes import Note
from pipeline.report import words
from pipeline.report.article import Link, badges, culprits, render_article, time_tag
from pipeline.report.markup import Child, Html, fragment, joined, tag
from schemas.records import Gap, Incident

GENERATOR: Final = "rootrank"
_REMARKS: Final = 50


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


def render_html(
    incidents: Sequence[Incident], gaps: Sequence[Gap], notes: Sequence[Note], *, read: str = "", is_read: bool = True,
    clocks: Sequence[str] = (),
) -> str:  # fmt: skip
    """A page that needs nothing else: no script, no other file, and a policy that forbids both.

    `read`: what was diagnosed, in the reader's words; `is_read`: whether anything of it was a log; `clocks`: what is
    known of them.
    """
    return stand_alone(
        _title(incidents, is_read),
        _about(read),
        "Skip to what was found",
        _overview(incidents, notes, is_read),
        *_articles(incidents),
        *_remarks(gaps, notes, clocks),
    )


def stand_alone(title: str, about: str, skip: str, *children: Child) -> str:
    """A page that needs nothing else. `about`: what it is of, beside the name; `skip`: what the first link says."""
    style = style_sheet()
    policy = f"default-src 'none'; style-src 'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="generator", content=f"{GENERATOR} {VERSION}"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("a", skip, class_="skip", href="#main"),
        tag("header", tag("span", "rootrank", class_="brand"), tag("span", about, class_="about"), class_="bar"),
        tag("main", *children, class_="page", id="main"),
        tag(
            "footer", f"rootrank {VERSION} made this page; it holds all that it shows and loads nothing.", class_="foot"
        ),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _about(read: str) -> str:
    return f"post-mortem of {words.shortened(read, 200)}" if read else "post-mortem"


def _title(incidents: Sequence[Incident], is_read: bool) -> str:
    if not incidents:
        return "No incident found" if is_read else "Nothing was read"
    first = f"{words.headline(incidents[0])}: {words.culprit_line(incidents[0])}"
    return first if len(incidents) == 1 else f"{first} (and {len(incidents) - 1} more)"


def _anchor(incident_id: str) -> str:
    return fragment(f"incident-{incident_id}")


def _overview(incidents: Sequence[Incident], notes: Sequence[Note], is_read: bool) -> Html:
    if not incidents:
        return _quiet(notes, is_read)
    if len(incidents) == 1:
        return joined()
    rows = tag("ol", *(render_row(incident, _anchor) for incident in incidents), class_="feed")
    return joined(tag("h1", words.counted(len(incidents), "incident"), class_="all"), rows)


def _quiet(notes: Sequence[Note], is_read: bool) -> Html:
    said = "Nothing in what was read proves that something broke."
    if not is_read:
        said = "Whether there was an incident is not known."
    elif notes:
        said = "What ended here has a reason that is no fault."
    return tag("section", tag("h1", _title((), is_read)), tag("p", said, class_="sentence"), class_="quiet-end")


def _articles(incidents: Sequence[Incident]) -> list[Html]:
    here = {incident.incident_id for incident in incidents}
    return [render_article(i, lambda name: _anchor(name) if name in here else None) for i in incidents]


def _remarks(gaps: Sequence[Gap], notes: Sequence[Note], clocks: Sequence[str]) -> list[Html]:
    parts = (
        ("Seen, and not an incident", [_note(note) for note in notes[:_REMARKS]], len(notes)),
        ("Not read or lost", [tag("li", words.gap_line(gap)) for gap in gaps[:_REMARKS]], len(gaps)),
        ("Clocks", [tag("li", line) for line in clocks[:_REMARKS]], len(clocks)),
    )
    return [
        tag("section", tag("h2", title), tag("ul", *items, _more(count - len(items))), class_="remarks")
        for title, items, count in parts
        if items
    ]


def _more(rest: int) -> Html | None:
    return tag("li", f"… and {words.grouped(rest)} more") if rest > 0 else None


def _note(note: Note) -> Html:
    return tag(
        "li",
        tag("strong", f"{words.class_words(note.class_)}."),
        f" {words.sentence(words.shortened(note.why))}",
        tag("pre", words.shortened(note.text)),
        tag("p", tag("code", words.address(note.source, note.line_no, None)), f" · {note.class_}", class_="quiet"),
    )
