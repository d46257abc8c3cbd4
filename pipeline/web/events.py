"""The live stream: every revision as a server-sent event, resumable by the id of the last one seen."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.metrics import Metrics
from pipeline.web.feed import Feed, event_id
from pipeline.web.query import BadQueryError, Query, parse_query
from schemas.records import Incident


def _stream_query(request: Request) -> Query:
    # A stream also carries what stops standing, or a page could not take it away.
    given = {**request.query_params, "state": "all"}
    return parse_query(given)


@dataclass(kw_only=True)
class Events:
    """The route /events. At most `max_streams` are open at a time, so that a script in a loop cannot exhaust us."""

    feed: Feed
    metrics: Metrics
    max_streams: int = 64
    heartbeat_s: float = 15.0
    _open: int = field(default=0, init=False)

    async def stream(self, request: Request) -> Response:
        """GET /events?run=&cluster=: starts after Last-Event-ID (or ?last_event_id=), else with what comes next."""
        try:
            query = _stream_query(request)
        except BadQueryError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        if self._open >= self.max_streams:
            self.metrics.feed_streams_refused.inc()
            sentence = f"{self.max_streams} live streams are open already; try again, or raise max_streams"
            return JSONResponse({"error": sentence}, status_code=503, headers={"Retry-After": "15"})
        last = request.headers.get("last-event-id") or request.query_params.get("last_event_id", "")
        return EventSourceResponse(
            self._counted(query, last),
            ping=self.heartbeat_s,
            sep="\n",
            ping_message_factory=lambda: ServerSentEvent(comment="heartbeat", sep="\n"),
            headers={"Cache-Control": "no-store"},
        )

    async def _counted(self, query: Query, last: str) -> AsyncIterator[ServerSentEvent]:
        self._open += 1
        self.metrics.feed_streams.set(self._open)
        try:
            async for event in self._follow(query, last):
                yield event
        finally:
            self._open -= 1
            self.metrics.feed_streams.set(self._open)

    async def _follow(self, query: Query, last: str) -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent(comment="rootrank", retry=2_000, sep="\n")
        position = self.feed.position_of(last) if last else self.feed.head
        while True:
            changes = None if position is None else self.feed.changes_after(position)
            if changes is None:
                # The reader's place is not held any more: tell it to start over, and give it what stands.
                position = self.feed.head
                yield ServerSentEvent(event="reset", data="{}", sep="\n")
                for incident in reversed(self.feed.select(query)):
                    yield _event(incident)
            for change in changes or []:
                position = change.position
                if query.wants(change.incident):
                    yield _event(change.incident)
            assert position is not None
            await self.feed.wait_beyond(position)


def _event(incident: Incident) -> ServerSentEvent:
    # JSON keeps line breaks of log text escaped, so no text can forge a field or an event.
    data = msgspec.json.encode(incident).decode()
    return ServerSentEvent(event="incident", id=event_id(incident), data=data, sep="\n")
