"""The web application: routes, headers, templates."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.metrics import Metrics
from pipeline.report.words import visible
from pipeline.web.api import Api
from pipeline.web.clock_pages import ClockPages
from pipeline.web.events import Events
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.pages import Pages
from pipeline.web.status import Status
from pipeline.web.table_pages import TablePages

_HERE: Final = Path(__file__).parent
SECURITY_HEADERS: Final[dict[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def _templates() -> Jinja2Templates:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, finalize=_spelled_out, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return Jinja2Templates(env=environment)


def _spelled_out(value: object) -> object:
    """What a template prints: control characters of text are made visible, HTML made by us stays as it is."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


class SecureHeaders:
    """Puts the security headers on every answer: log text is written by whoever can write a log line."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.headers = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in self.headers}
                kept = [header for header in message["headers"] if header[0] not in names]
                message = {**message, "headers": kept + self.headers}
            await send(message)

        await self.app(scope, receive, send_with_headers)


def create_app(
    feed: Feed,
    health: Callable[[], Health],
    *,
    clock_health: Callable[[], Health] | None = None,
    metrics: Metrics | None = None,
    max_streams: int = 64,
    heartbeat_s: float = 15.0,
    hosts: Sequence[str] = ("*",),
) -> Starlette:
    """The application over a feed that somebody else fills. `health` says whether that somebody is alive,
    `clock_health` the same of who tells it of clocks (by default as `health`).

    `hosts`: names under which it may be asked; on loopback only loopback's, so that no page elsewhere can have its own
    name point here and read log text.
    """
    counted = metrics or Metrics()
    templates = _templates()
    api = Api(feed=feed, health=health)
    events = Events(feed=feed, metrics=counted, max_streams=max_streams, heartbeat_s=heartbeat_s)
    clocks = ClockPages(book=feed.clocks, health=clock_health or health, templates=templates)
    status = Status(feed=feed, health=health, clock_health=clocks.health, metrics=counted)
    pages = Pages(feed=feed, health=health, templates=templates, clock_warnings=status.clock_warnings)
    tables = TablePages(health=health, templates=templates)
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/incidents/{incident_id:path}", pages.incident),
            Route("/api/incidents", api.incidents),
            Route("/api/incidents/{incident_id:path}", api.incident),
            Route("/clocks", clocks.page),
            Route("/api/clocks", clocks.api),
            Route("/tables", tables.page),
            Route("/api/tables", tables.api),
            Route("/api/jobs/{job_id:path}", api.job),
            Route("/events", events.stream),
            Route("/healthz", status.healthz),
            Route("/metrics", status.prometheus),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            Middleware(SecureHeaders),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
        exception_handlers={HTTPException: pages.problem},
    )
