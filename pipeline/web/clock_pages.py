"""The clocks of the nodes: a page for people, the same as JSON."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.templating import Jinja2Templates

from pipeline.report import clock_words, words
from pipeline.web.clocks import ClockBook
from pipeline.web.health import Health
from pipeline.web.query import RUNS, BadQueryError, ClockQuery, parse_clock_query

# A page of more is slow to draw; the worst stand first.
ROWS_OF_A_PAGE: Final = 500
AGAIN_S: Final = 15


@dataclass(frozen=True, kw_only=True)
class ClockPages:
    """The routes /clocks and /api/clocks."""

    book: ClockBook
    health: Callable[[], Health]
    templates: Jinja2Templates

    async def api(self, request: Request) -> Response:
        """GET /api/clocks?run=&cluster=&bad=&limit="""
        try:
            query = parse_clock_query(request.query_params)
        except BadQueryError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        listing = self.book.listing(query, _now_ms(), self.health())
        return Response(msgspec.json.encode(listing), media_type="application/json")

    async def page(self, request: Request) -> Response:
        """GET /clocks, with the same parameters."""
        given: Mapping[str, str] = {"limit": str(ROWS_OF_A_PAGE), **request.query_params}
        health = self.health()
        try:
            query = parse_clock_query(given)
        except BadQueryError as error:
            wrong = {"status": HTTPStatus.BAD_REQUEST, "sentence": words.visible(str(error)), "health": health}
            return self.templates.TemplateResponse(request, "message.html", wrong, status_code=400)
        now_ms = _now_ms()
        listing = self.book.listing(query, now_ms, health)
        context = {
            "query": query,
            "listing": listing,
            "nodes": sum(listing.counts.values()),
            "several": len({clock.cluster for clock in listing.clocks}) > 1,
            "clusters": self.book.clusters(),
            "runs": [run for run in RUNS if run != "post_mortem"],
            "others": [(run, count, _address(query, run=run)) for run, count in sorted(listing.other_runs.items())],
            "all_rows": _address(query, limit=str(listing.total)),
            "unknown": clock_words.no_node_of(listing, query.cluster),
            "said": clock_words,
            "clock": words.clock,
            "day": words.day,
            "now": time.strftime("%H:%M:%S", time.gmtime(now_ms // 1_000)),
            "again_s": AGAIN_S,
            "health": health,
        }
        return self.templates.TemplateResponse(request, "clocks.html", context)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _address(query: ClockQuery, **changed: str) -> str:
    given = {"run": query.run, "cluster": query.cluster, "bad": "1" if query.bad else "", **changed}
    if given["run"] == "live":
        del given["run"]
    asked = urlencode({key: value for key, value in given.items() if value})
    return f"/clocks?{asked}" if asked else "/clocks"
