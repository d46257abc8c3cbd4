"""Runs the feed: consumer and web server in one event loop."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import uvicorn

from pipeline.metrics import Metrics
from pipeline.web import DEFAULT_HOST, DEFAULT_PORT
from pipeline.web.app import create_app
from pipeline.web.consumer import KafkaClocks, KafkaIncidents
from pipeline.web.feed import Feed
from schemas.kafka_access import PLAIN, Access

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1", "[::1]")


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """Where the feed listens and reads. Whoever can connect reads log text: keep it on loopback or behind a proxy."""

    bootstrap: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    max_streams: int = 64
    access: Access = PLAIN


async def serve(settings: WebSettings, *, metrics: Metrics | None = None) -> None:
    """Serve until SIGINT or SIGTERM. A broker that is away is waited for; the pages say so meanwhile."""
    # It repeats every attempt of every connection; the consumer says once what matters.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    counted = metrics or Metrics()
    feed = Feed()
    source = KafkaIncidents(bootstrap=settings.bootstrap, metrics=counted, access=settings.access)
    hosts = LOOPBACK if settings.host in LOOPBACK else ("*",)
    clocks = KafkaClocks(bootstrap=settings.bootstrap, metrics=counted, access=settings.access)
    app = create_app(
        feed, source.health, clock_health=clocks.health, metrics=counted, max_streams=settings.max_streams, hosts=hosts
    )
    config = uvicorn.Config(
        app, host=settings.host, port=settings.port, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=3, lifespan="off",
    )  # fmt: skip
    following = [asyncio.create_task(one.follow(feed)) for one in (source, clocks)]
    try:
        await uvicorn.Server(config).serve()
    finally:
        # A consumer that failed has logged it and shows in /healthz; the server outlives it on purpose.
        for one in following:
            one.cancel()
        await asyncio.gather(*following, return_exceptions=True)


def run(settings: WebSettings) -> None:
    """Serve in this process, from ordinary code."""
    asyncio.run(serve(settings))
