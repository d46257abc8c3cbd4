"""Episodes: what coalesces, and that the order of arrival does not matter."""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.episodes import MAX_IDS, Coalescing, Episode, Episodes, of_events
from schemas.records import Event
from tests.strategies import SECOND, T0, any_events, event, lost_gpu

HOW: Mapping[str, Coalescing] = {
    "gpu.xid": Coalescing(event="gpu.xid", variant=["xid"], window_s=60),
    "cuda.error": Coalescing(event="cuda.error", window_s=5),
}


def _said(episodes: list[Episode]) -> str:
    return msgspec.json.encode(episodes).decode()


@given(any_events(most=14), st.randoms(use_true_random=False))
def test_any_order_of_events_gives_the_same_episodes(events: list[Event], random: Any) -> None:
    mixed = list(events)
    random.shuffle(mixed)
    assert _said(of_events(mixed, HOW)) == _said(of_events(events, HOW))


@given(any_events(most=14), st.integers(0, 14))
def test_a_snapshot_in_the_middle_changes_nothing(events: list[Event], cut: int) -> None:
    whole = Episodes()
    for one in events:
        whole.add(one, HOW)
    parts = Episodes()
    for one in events[:cut]:
        parts.add(one, HOW)
    parts = msgspec.json.decode(msgspec.json.encode(parts), type=Episodes)
    for one in events[cut:]:
        parts.add(one, HOW)
    assert _said(parts.sorted()) == _said(whole.sorted())


@given(any_events(most=14))
def test_no_line_is_lost(events: list[Event]) -> None:
    episodes = of_events(events, HOW)
    assert sum(episode.count for episode in episodes) == sum(one.count for one in events)
    assert {i for episode in episodes for i in episode.event_ids} == {one.event_id for one in events}


def _xid(at_s: int, offset: int, xid: str = "119") -> Event:
    return event("gpu.xid", at_ns=T0 + at_s * SECOND, offset=offset, bus="0000:5e:00.0", attributes={"xid": xid})


def test_lines_closer_than_the_window_are_one_episode_and_the_first_is_the_evidence() -> None:
    (episode,) = of_events([_xid(50, 2), _xid(0, 1), _xid(100, 3)], HOW)
    assert episode.count == 3
    assert episode.first.offset == 1
    assert (episode.start_ns, episode.end_ns) == (T0, T0 + 100 * SECOND)


def test_a_longer_silence_starts_a_new_episode() -> None:
    assert [e.count for e in of_events([_xid(0, 1), _xid(61, 2)], HOW)] == [1, 1]


def test_a_late_line_joins_two_episodes_that_it_lies_between() -> None:
    assert [e.count for e in of_events([_xid(0, 1), _xid(100, 2), _xid(50, 3)], HOW)] == [3]


def test_variants_and_entities_stay_apart() -> None:
    assert len(of_events([_xid(0, 1, "48"), _xid(0, 2, "63")], HOW)) == 2
    assert len(of_events([lost_gpu("alpha"), lost_gpu("beta")], HOW)) == 2


def test_lines_without_time_are_one_episode_apart_from_those_with_time() -> None:
    timeless = [event("cuda.error", at_ns=None, offset=n) for n in range(3)]
    episodes = of_events([*timeless, event("cuda.error", at_ns=T0, offset=9)], HOW)
    assert sorted(e.count for e in episodes) == [1, 3]


def test_a_storm_keeps_its_count_but_not_every_id() -> None:
    (episode,) = of_events([_xid(n % 50, n) for n in range(500)], HOW)
    assert episode.count == 500
    assert len(episode.event_ids) == MAX_IDS


def test_which_ids_a_storm_keeps_does_not_depend_on_the_order() -> None:
    storm = [_xid(n % 50, n) for n in range(100)]
    assert _said(of_events(storm, HOW)) == _said(of_events(list(reversed(storm)), HOW))


def test_what_happens_again_and_again_is_told_by_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.core.episodes.MAX_OF_KEY", 10)
    episodes, hour = Episodes(), 3_600 * SECOND
    for number in range(100):
        episodes.add(event("nfs.stall", at_ns=T0 + number * hour, offset=number), HOW)
    kept = [(episode.start_ns - T0) // hour for episode in episodes.sorted()]
    assert len(kept) == episodes.kept == 10
    assert (min(kept), max(kept)) == (0, 99)
    assert episodes.dropped == 90


def _storm(count: int) -> list[Event]:
    return [event("process.abort", node=f"n{n}", at_ns=T0 + n * SECOND, role="symptom", offset=n) for n in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_symptoms_leaves_room_for_what_comes_after_it(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("pipeline.core.episodes.MAX_EPISODES", 40)
    monkeypatch.setattr("pipeline.core.episodes.MOST_OF_NAME", (16, 8))
    episodes, storm = Episodes(), random.Random(seed).sample(_storm(300), 300)
    for one in [*storm, event("host.oom.kill", node="m", at_ns=T0 + 900 * SECOND, role="cause", offset=1)]:
        episodes.add(one, HOW)
    kept = [episode.first.node for episode in episodes.sorted()]
    assert kept[:16] == [f"n{n}" for n in range(16)]
    assert kept[-1] == "m"
    assert sum(episode.count for episode in episodes.sorted()) + episodes.dropped == 301


def test_causes_are_not_thinned_and_not_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.core.episodes.MAX_EPISODES", 40)
    episodes = Episodes()
    for n in range(100):
        episodes.add(event("host.oom.kill", node=f"n{n}", at_ns=T0 + n * SECOND, role="cause", offset=n), HOW)
    assert (len(episodes.sorted()), episodes.dropped) == (80, 20)
