import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[2]
COMMAND = (
    "import sys; from pipeline.web.server import *; run(WebSettings(bootstrap=sys.argv[1], port=int(sys.argv[2])))"
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def answer(client: httpx2.AsyncClient, url: str) -> httpx2.Response:
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.get(url)
            except httpx2.ConnectError:
                await asyncio.sleep(0.05)


async def test_without_a_broker_the_feed_is_up_says_so_and_ends_on_a_signal_with_streams_open() -> None:
    port, nobody = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, f"127.0.0.1:{nobody}", str(port), env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with httpx2.AsyncClient() as client:
            health = await answer(client, f"http://127.0.0.1:{port}/healthz")
            assert health.status_code == 503
            assert health.json()["ok"] is False
            assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 200
            async with client.stream("GET", f"http://127.0.0.1:{port}/events") as stream:
                assert stream.status_code == 200
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(10):
                    await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        _, errors = await process.communicate()

    assert process.returncode in (0, -signal.SIGTERM)
    assert b"Traceback" not in errors
