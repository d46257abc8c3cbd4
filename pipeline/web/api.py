"""Incidents as JSON: the same objects as on the topic, in ClickHouse and from `diagnose --json`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.web.answers import AttemptNodes, JobView, Listing, One
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.query import BadQueryError, Query, parse_query
from schemas.records import Shown


def other_runs(feed: Feed, query: Query) -> dict[str, int]:
    """How many incidents each run holds that the query leaves out."""
    counts: dict[str, int] = {}
    for incident in feed.select(replace(query, run="all")):
        if query.run not in ("all", incident.run):
            counts[incident.run] = counts.get(incident.run, 0) + 1
    return counts


def other_runs_of(feed: Feed, job_id: str, query: Query) -> dict[str, int]:
    """How many attempts of a job each run holds that the query leaves out."""
    held = {(one.run, one.cluster, one.attempt) for one in feed.jobs.of_job(job_id, "all", query.cluster)}
    for incident in feed.of_job(job_id, "all", query.cluster):
        held |= {(incident.run, incident.cluster, one.attempt) for one in incident.jobs if one.job_id == job_id}
    return dict(Counter(run for run, _, _ in held if query.run not in ("all", run)))


@dataclass(frozen=True, kw_only=True)
class Api:
    """The routes below /api."""

    feed: Feed
    health: Callable[[], Health]

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

    async def job(self, request: Request) -> Response:
        """GET /api/jobs/{job}?run=&cluster=: a job of which nothing is known has empty lists."""
        try:
            query = parse_query(request.query_params)
        except BadQueryError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        job_id, health = request.path_params["job_id"], self.health()
        attempts = sorted(
            self.feed.jobs.of_job(job_id, query.run, query.cluster), key=lambda one: (one.cluster, one.attempt)
        )
        return _json(
            JobView(
                job_id=job_id,
                attempts=[
                    AttemptNodes(cluster=one.cluster, attempt=one.attempt, nodes=one.all_nodes()) for one in attempts
                ],
                incidents=self.feed.of_job(job_id, query.run, query.cluster),
                notes=[note for one in attempts for _, note in sorted(one.notes.items())],
                following=health.ok,
                reason=health.reason,
                other_runs=other_runs_of(self.feed, job_id, query),
            )
        )


def _json(answer: Shown) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
