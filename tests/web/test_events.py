import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
import msgspec

from pipeline.web.feed import Feed
from schemas.records import Incident

replace = msgspec.structs.replace
Serve = Callable[..., AbstractAsyncContextManager[str]]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


class Stream:
    """The lines of a stream, grouped into events as a browser would."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self.lines = lines
        self.comments: list[str] = []

    async def next(self) -> dict[str, str]:
        event: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self.lines:
                if line.startswith(":"):
                    self.comments.append(line)
                elif line:
                    name, _, value = line.partition(": ")
                    event[name] = f"{event[name]}\n{value}" if name in event else value
                elif "event" in event:
                    return event
        raise AssertionError("the stream ended")


@asynccontextmanager
async def listening(url: str, last: str = "") -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": last} if last else {}
    async with httpx2.AsyncClient(timeout=10) as client, client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(lines_of(answer.aiter_bytes()))


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Lines as the format means them: only CR and LF end one, not every line end that Unicode knows."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            yield line.decode()


async def test_a_stream_brings_what_comes_after_it_was_opened(
    serve: Serve, fell_off: Incident, timed_out: Incident
) -> None:
    feed = Feed()
    feed.apply(fell_off)
    async with serve(feed) as url, listening(f"{url}/events") as stream:
        feed.apply(timed_out)

        event = await stream.next()

    assert event["event"] == "incident"
    assert event["id"] == "e01b77c2d458:1"
    assert msgspec.json.decode(event["data"], type=Incident) == timed_out


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(
    serve: Serve, fell_off: Incident, timed_out: Incident, out_of_memory: Incident
) -> None:
    feed = Feed()
    for incident in (fell_off, timed_out, out_of_memory):
        feed.apply(incident)
    async with serve(feed) as url:
        async with listening(f"{url}/events", last="7d2f4a90c1be:3") as stream:
            seen = [(await stream.next())["id"], (await stream.next())["id"]]
        async with listening(f"{url}/events?last_event_id=e01b77c2d458:1") as stream:
            seen_by_page = (await stream.next())["id"]

    assert seen == ["e01b77c2d458:1", "b3550a1f6c07:2"]
    assert seen_by_page == "b3550a1f6c07:2"


async def test_a_place_that_is_not_known_starts_over_with_what_stands(
    serve: Serve, fell_off: Incident, out_of_memory: Incident
) -> None:
    feed = Feed()
    feed.apply(fell_off)
    feed.apply(out_of_memory)
    async with serve(feed) as url, listening(f"{url}/events", last="never:1") as stream:
        events = [await stream.next() for _ in range(3)]

    assert [e["event"] for e in events] == ["reset", "incident", "incident"]
    assert [e.get("id") for e in events[1:]] == ["b3550a1f6c07:2", "7d2f4a90c1be:3"]


async def test_a_live_stream_carries_no_replay_and_a_replay_stream_nothing_live(
    serve: Serve, fell_off: Incident
) -> None:
    feed = Feed()
    replayed = replace(fell_off, incident_id="r", run="replay")
    async with serve(feed) as url, listening(f"{url}/events") as live, listening(f"{url}/events?run=replay") as replay:
        feed.apply(replayed)
        feed.apply(fell_off)

        assert (await live.next())["id"] == "7d2f4a90c1be:3"
        assert (await replay.next())["id"] == "live~r:3"


async def test_what_is_withdrawn_is_also_sent_so_that_pages_can_take_it_away(serve: Serve, fell_off: Incident) -> None:
    feed = Feed()
    async with serve(feed) as url, listening(f"{url}/events") as stream:
        feed.apply(replace(fell_off, state="retracted"))

        assert '"state":"retracted"' in (await stream.next())["data"]


async def test_line_breaks_in_log_text_forge_no_event(serve: Serve, fell_off: Incident, timed_out: Incident) -> None:
    feed = Feed()
    text = "boom\n\nevent: incident\nid: forged:1\ndata: {}\r\rdata: x\u2028\x85"
    forged = replace(fell_off, explanation=text, incident_id="a\nid: forged:2\n\ndata: {}")
    async with serve(feed) as url, listening(f"{url}/events") as stream:
        feed.apply(forged)
        feed.apply(timed_out)

        first, second = await stream.next(), await stream.next()

    assert msgspec.json.decode(first["data"], type=Incident) == forged
    assert second["id"] == "e01b77c2d458:1"


async def test_an_idle_stream_has_a_heartbeat(serve: Serve, fell_off: Incident, eventually: Eventually) -> None:
    feed = Feed()
    async with serve(feed, heartbeat_s=0.05) as url, listening(f"{url}/events") as stream:
        reading = asyncio.create_task(stream.next())
        await eventually(lambda: ": heartbeat" in stream.comments)
        feed.apply(fell_off)
        await reading


async def test_streams_beyond_the_limit_are_refused_and_a_place_becomes_free_again(
    serve: Serve, eventually: Eventually
) -> None:
    async with serve(Feed(), max_streams=1, heartbeat_s=0.05) as url, httpx2.AsyncClient() as client:
        async with listening(f"{url}/events"):
            refused = await client.get(f"{url}/events")
            assert "rootrank_feed_streams 1.0" in (await client.get(f"{url}/metrics")).text
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "15"

        freed = ""
        async with asyncio.timeout(10):
            while "rootrank_feed_streams 0.0" not in freed:
                freed = (await client.get(f"{url}/metrics")).text
        async with listening(f"{url}/events"):
            pass
