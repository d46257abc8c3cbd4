"""The address of the page that `rootrank up` prints."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from pipeline.up import page_with_incidents
from pipeline.web.feed import Feed
from schemas.vocabulary import Run
from tests.core.failed_jobs import failed

Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.mark.parametrize(
    ("runs", "query"),
    [
        ([], ""), (["live"], ""), (["live", "replay"], ""), (["replay"], "/?run=replay"),
        (["drill", "replay"], "/?run=replay"), (["drill"], "/?run=drill"),
    ],
)  # fmt: skip
async def test_it_is_that_of_another_run_where_nothing_is_live(serve: Serve, runs: list[Run], query: str) -> None:
    feed = Feed()
    for run in runs:
        feed.apply(failed("software/cuda_oom", run=run, run_id=run, incident_id=run))
    async with serve(feed) as url:
        assert await asyncio.to_thread(page_with_incidents, url) == f"{url}{query}"


def test_a_feed_that_does_not_answer_is_named_as_it_is() -> None:
    assert page_with_incidents("http://127.0.0.1:1") == "http://127.0.0.1:1"
