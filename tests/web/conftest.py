import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
import uvicorn

from pipeline.web.app import create_app
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from schemas.records import Incident

INCIDENTS = Path(__file__).parent / "incidents"
Serve = Callable[..., AbstractAsyncContextManager[str]]


def load(name: str) -> Incident:
    return msgspec.json.decode((INCIDENTS / f"{name}.json").read_bytes(), type=Incident)


@pytest.fixture
def fell_off() -> Incident:
    return load("fell_off_the_bus")


@pytest.fixture
def timed_out() -> Incident:
    return load("collective_timeout")


@pytest.fixture
def out_of_memory() -> Incident:
    return load("host_oom")


@pytest.fixture
def healthy() -> Callable[[], Health]:
    return lambda: Health(state="following")


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for a condition, with a deadline."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 (the condition is somebody else's state)
                await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def serve(healthy: Callable[[], Health]) -> Serve:
    """A real server on a free loopback port, in the loop of the test; gives its address."""

    @contextlib.asynccontextmanager
    async def running(feed: Feed, port: int = 0, **options: int | float) -> AsyncIterator[str]:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        app = create_app(feed, healthy, **options)  # type: ignore[arg-type]
        config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
                await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
            listener.close()

    return running
