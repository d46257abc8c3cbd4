"""What a supervisor and Prometheus ask for."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.metrics import CONTENT_TYPE, Metrics
from pipeline.report.clock_words import warnings
from pipeline.web.answers import ClockListing
from pipeline.web.clocks import UNUSABLE
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.query import ClockQuery


@dataclass(frozen=True, kw_only=True)
class Status:
    """The routes /healthz and /metrics."""

    feed: Feed
    health: Callable[[], Health]
    clock_health: Callable[[], Health]
    metrics: Metrics

    async def healthz(self, request: Request) -> Response:
        """GET /healthz: 200 while the feed shows the present, 503 with the reason otherwise, warnings or not."""
        health, clocks = self.health(), self._clocks()
        answer = {
            "ok": health.ok,
            "kafka": health.state,
            "reason": health.reason,
            "incidents": len(self.feed),
            "unreadable_messages": health.unreadable,
            "clocks": clocks.counts,
            "warnings": warnings(clocks),
        }
        return JSONResponse(answer, status_code=200 if health.ok else 503)

    async def prometheus(self, request: Request) -> Response:
        """GET /metrics"""
        clocks = self._clocks()
        self.metrics.feed_incidents.set(len(self.feed))
        for state, nodes in clocks.counts.items():
            self.metrics.clock_nodes.labels(quality=state).set(nodes)
        self.metrics.clock_unusable.set(sum(clocks.counts[state] for state in UNUSABLE))
        widest = clocks.widest
        self.metrics.clock_widest_bound.set((widest.bound_ns or 0) / 1e9 if widest else 0)
        farthest = clocks.farthest
        self.metrics.clock_widest_wall_offset.set(abs(farthest.wall_offset_ns or 0) / 1e9 if farthest else 0)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    def clock_warnings(self) -> list[str]:
        """What is wrong with live clocks, in sentences; nothing while they are not known."""
        clocks = self._clocks()
        return warnings(clocks) if clocks.following else []

    def _clocks(self) -> ClockListing:
        return self.feed.clocks.listing(ClockQuery(), time.time_ns() // 1_000_000, self.clock_health())
