"""The pages people look at. Each works as a snapshot without a script."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from pipeline.report import words
from pipeline.report.article import render_article
from pipeline.report.page import render_row
from pipeline.web.api import other_runs
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.query import RUNS, STATES, BadQueryError, Query, parse_query
from schemas.records import Incident

_TABS = tuple(run for run in RUNS if run != "post_mortem")


def incident_address(incident_id: str) -> str:
    """The address of an incident's page."""
    return f"/incidents/{quote(incident_id, safe='')}"


@dataclass(frozen=True, kw_only=True)
class Tab:
    """One run to look at, and how many incidents it has."""

    run: str
    href: str
    count: int
    current: bool


@dataclass(frozen=True, kw_only=True)
class Pages:
    """The feed page, the incident page, and the page that says what went wrong."""

    feed: Feed
    health: Callable[[], Health]
    templates: Jinja2Templates
    clock_warnings: Callable[[], list[str]] = list

    async def index(self, request: Request) -> Response:
        """GET /?run=&cluster=&state=&limit="""
        try:
            query = parse_query(request.query_params)
        except BadQueryError as error:
            return self._message(request, HTTPStatus.BAD_REQUEST, str(error))
        found = self.feed.select(query)
        context = {
            "query": query,
            "tabs": self._tabs(query, found),
            "rows": [render_row(incident, incident_address) for incident in found[: query.limit]],
            "total": len(found),
            "open_count": sum(incident.state == "open" for incident in found),
            "others": self._others(query),
            "clusters": self.feed.clusters(),
            "states": STATES,
            "stream": _stream_address(query, self.feed.last_event_id),
            "clock_warnings": self.clock_warnings() if query.run in ("live", "all") else [],
            "health": self.health(),
        }
        return self.templates.TemplateResponse(request, "feed.html", context)

    async def incident(self, request: Request) -> Response:
        """GET /incidents/{id}?revision="""
        revisions = self.feed.revisions(request.path_params["incident_id"])
        if not revisions:
            return self._message(
                request, HTTPStatus.NOT_FOUND, "No incident has this id. It may have been too old to keep."
            )
        shown = _chosen(revisions, request.query_params.get("revision", ""))
        if shown is None:
            return self._message(request, HTTPStatus.NOT_FOUND, "This incident has no such revision.")
        context = {
            "title": f"{words.headline(shown)}: {words.culprit_line(shown)}",
            "article": render_article(shown, incident_address),
            "shown": shown,
            "latest": revisions[-1],
            "address": incident_address(words.name_of(shown)),
            "revisions": list(reversed(revisions)),
            "words": words,
            "stream": _stream_address(Query(run=shown.run), self.feed.last_event_id),
            "health": self.health(),
        }
        return self.templates.TemplateResponse(request, "incident.html", context)

    async def problem(self, request: Request, error: Exception) -> Response:
        """Whatever has no page of its own."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._message(request, HTTPStatus(status), "")

    def _message(self, request: Request, status: HTTPStatus, sentence: str) -> Response:
        context = {"status": status, "sentence": words.visible(sentence), "health": self.health()}
        return self.templates.TemplateResponse(request, "message.html", context, status_code=status)

    def _tabs(self, query: Query, found: list[Incident]) -> list[Tab]:
        counts = {**other_runs(self.feed, query), query.run: len(found)}
        if query.run == "all":
            for incident in found:
                counts[incident.run] = counts.get(incident.run, 0) + 1
        counts["all"] = sum(count for run, count in counts.items() if run != "all")
        if query.run == "all":
            counts["all"] = len(found)
        return [
            Tab(run=run, href=_page_address(query, run), count=counts.get(run, 0), current=run == query.run)
            for run in _TABS
        ]

    def _others(self, query: Query) -> list[Tab]:
        counts = other_runs(self.feed, query)
        return [
            Tab(run=run, href=_page_address(query, run), count=count, current=False)
            for run, count in sorted(counts.items(), key=lambda item: -item[1])
        ]


def _chosen(revisions: list[Incident], wanted: str) -> Incident | None:
    if not wanted:
        return revisions[-1]
    return next((incident for incident in revisions if str(incident.revision) == wanted), None)


def _page_address(query: Query, run: str) -> str:
    given = {"run": run, "cluster": query.cluster, "state": query.state}
    if run == "live":
        del given["run"]
    asked = urlencode({key: value for key, value in given.items() if value})
    return f"/?{asked}" if asked else "/"


def _stream_address(query: Query, last_event_id: str) -> str:
    given = {"run": query.run, "cluster": query.cluster, "last_event_id": last_event_id}
    return f"/events?{urlencode({key: value for key, value in given.items() if value})}"
