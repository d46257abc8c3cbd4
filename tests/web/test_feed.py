import asyncio

import msgspec
import pytest

from pipeline.web.feed import Feed
from pipeline.web.query import BadQueryError, Query, parse_query
from schemas.records import Incident

replace = msgspec.structs.replace


def test_a_revision_that_is_known_or_older_changes_nothing(fell_off: Incident) -> None:
    feed = Feed()

    assert feed.apply(fell_off)
    assert not feed.apply(fell_off)
    assert not feed.apply(replace(fell_off, revision=fell_off.revision - 1))
    assert feed.head == 1


def test_a_newer_revision_takes_the_place_and_the_older_is_kept(fell_off: Incident) -> None:
    feed = Feed()
    newer = replace(fell_off, revision=9, confidence=0.5)

    feed.apply(fell_off)
    feed.apply(newer)

    assert feed.get(fell_off.incident_id) == newer
    assert feed.revisions(fell_off.incident_id) == [fell_off, newer]


def test_the_newest_start_comes_first_whatever_the_order_of_arrival(
    fell_off: Incident, timed_out: Incident, out_of_memory: Incident
) -> None:
    feed = Feed()
    for incident in (fell_off, timed_out, out_of_memory):
        feed.apply(incident)

    assert feed.select(Query()) == [timed_out, fell_off, out_of_memory]


def test_runs_never_mix(fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    feed.apply(replace(fell_off, incident_id="r", run="replay"))

    assert [i.incident_id for i in feed.select(Query())] == [fell_off.incident_id]
    assert [i.incident_id for i in feed.select(Query(run="replay"))] == ["r"]
    assert len(feed.select(Query(run="all"))) == 2


@pytest.mark.parametrize("state", ["superseded", "retracted"])
def test_what_no_longer_stands_is_hidden_unless_asked_for(fell_off: Incident, state: str) -> None:
    feed = Feed()
    feed.apply(replace(fell_off, state=state))

    assert feed.select(Query()) == []
    assert len(feed.select(parse_query({"state": state}))) == 1
    assert len(feed.select(parse_query({"state": "all"}))) == 1


def test_changes_after_a_position_come_in_order_of_arrival(fell_off: Incident, timed_out: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    here = feed.position_of(feed.last_event_id)
    feed.apply(timed_out)

    assert here is not None
    assert [c.incident for c in feed.changes_after(here) or []] == [timed_out]
    assert feed.changes_after(feed.head) == []


def test_a_position_that_is_no_longer_held_is_none_not_a_hole(fell_off: Incident) -> None:
    feed = Feed(keep_changes=2)
    for revision in range(4, 8):
        feed.apply(replace(fell_off, revision=revision))

    assert feed.position_of(f"{fell_off.incident_id}:4") is None
    assert feed.changes_after(1) is None
    assert len(feed.changes_after(2) or []) == 2


def test_memory_is_bounded_and_the_oldest_incidents_go_first(fell_off: Incident) -> None:
    feed = Feed(keep_incidents=10)
    for day in range(10, 29):
        feed.apply(replace(fell_off, incident_id=f"d{day}", started_at=f"2026-02-{day}T00:00:00Z"))

    kept = [i.incident_id for i in feed.select(Query())]

    assert len(kept) <= 11
    assert kept[0] == "d28"
    assert "d10" not in kept


async def test_waiting_ends_when_something_changes(fell_off: Incident) -> None:
    feed = Feed()
    waiting = asyncio.create_task(feed.wait_beyond(feed.head))
    await asyncio.sleep(0)
    assert not waiting.done()

    feed.apply(fell_off)

    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(
    "given", [{"run": "dead"}, {"state": "gone"}, {"limit": "0"}, {"limit": "²"}, {"limit": "9" * 5000}]
)
def test_a_query_that_makes_no_sense_says_what_would(given: dict[str, str]) -> None:
    with pytest.raises(BadQueryError, match=r"use one of|is not a number from 1 to"):
        parse_query(given)


def test_a_replay_of_an_incident_leaves_the_live_one_alone(fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    for run_id in ("first", "second"):
        feed.apply(replace(fell_off, run="replay", run_id=run_id, revision=1))

    assert feed.get(fell_off.incident_id) == fell_off
    assert {i.run_id for i in feed.select(Query(run="replay"))} == {"first", "second"}
    assert feed.revisions(f"first~{fell_off.incident_id}")[0].run_id == "first"
