"""What a supervisor and Prometheus ask for."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.metrics import CONTENT_TYPE, Metrics
from pipeline.web.feed import Feed
from pipeline.web.health import Health


@dataclass(frozen=True, kw_only=True)
class Status:
    """The routes /healthz and /metrics."""

    feed: Feed
    health: Callable[[], Health]
    metrics: Metrics

    async def healthz(self, request: Request) -> Response:
        """GET /healthz: 200 while the feed shows the present, 503 with the reason otherwise."""
        health = self.health()
        answer = {
            "ok": health.ok,
            "kafka": health.state,
            "reason": health.reason,
            "incidents": len(self.feed),
            "unreadable_messages": health.unreadable,
        }
        return JSONResponse(answer, status_code=200 if health.ok else 503)

    async def prometheus(self, request: Request) -> Response:
        """GET /metrics"""
        self.metrics.feed_incidents.set(len(self.feed))
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)
