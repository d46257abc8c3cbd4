"""Incidents as JSON: the same objects as on the topic, in ClickHouse and from `diagnose --json`."""

from dataclasses import dataclass, replace

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.web.answers import Listing, One
from pipeline.web.feed import Feed
from pipeline.web.query import BadQueryError, Query, parse_query
from schemas.records import Shown


def other_runs(feed: Feed, query: Query) -> dict[str, int]:
    """How many incidents each run holds that the query leaves out."""
    counts: dict[str, int] = {}
    for incident in feed.select(replace(query, run="all")):
        if query.run not in ("all", incident.run):
            counts[incident.run] = counts.get(incident.run, 0) + 1
    return counts


@dataclass(frozen=True, kw_only=True)
class Api:
    """The routes below /api."""

    feed: Feed

    async def incidents(self, request: Request) -> Response:
        """GET /api/incidents?run=&cluster=&state=&limit="""
        try:
            query = parse_query(request.query_params)
        except BadQueryError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        found = self.feed.select(query)
        return _json(
            Listing(
                incidents=found[: query.limit],
                total=len(found),
                other_runs=other_runs(self.feed, query),
                last_event_id=self.feed.last_event_id,
            )
        )

    async def incident(self, request: Request) -> Response:
        """GET /api/incidents/{id}"""
        revisions = self.feed.revisions(request.path_params["incident_id"])
        if not revisions:
            return JSONResponse({"error": "no incident has this id; /api/incidents lists them"}, status_code=404)
        return _json(One(incident=revisions[-1], revisions=revisions))


def _json(answer: Shown) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
