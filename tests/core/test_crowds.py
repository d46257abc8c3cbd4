"""What many ranks print alike is one episode with a list of who printed it."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.chains import Resolved
from pipeline.core.episodes import MAX_EPISODES, Episodes, of_events
from pipeline.core.order import order
from pipeline.rules import load_rules
from schemas.records import Event
from tests.strategies import SECOND, T0, lost_gpu, waited

COALESCING = load_rules().coalescing


def _waits(ranks: int) -> list[Event]:
    return [waited(rank, f"n{rank // 8}", at_ns=T0 + (600 + rank % 7) * SECOND) for rank in range(ranks)]


def test_a_storm_of_ranks_is_one_episode_and_drops_no_cause() -> None:
    episodes = Episodes()
    for one in [*_waits(MAX_EPISODES + 100), lost_gpu("zz")]:
        episodes.add(one, COALESCING)
    assert episodes.dropped == 0
    storm, cause = sorted(episodes.sorted(), key=lambda e: e.name, reverse=True)
    assert (len(storm.crowd), storm.count, cause.name) == (MAX_EPISODES + 100, MAX_EPISODES + 100, "gpu.xid")


def test_another_collective_is_another_crowd() -> None:
    other = msgspec.structs.replace(waited(9, "n1"), attributes={"seq": "87", "op": "ALLREDUCE"})
    assert sorted(len(e.crowd) for e in of_events([*_waits(4), other], COALESCING)) == [1, 4]


def test_who_is_at_fault_itself_is_in_no_crowd() -> None:
    causes = [msgspec.structs.replace(one, role="cause") for one in _waits(3)]
    assert [len(e.crowd) for e in of_events(causes, COALESCING)] == [0, 0, 0]


@given(seed=st.integers(0, 10_000), ranks=st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_any_order_of_arrival_gives_the_same_crowd(seed: int, ranks: int) -> None:
    events = [*_waits(ranks), *(waited(rank, f"n{rank // 8}", at_ns=T0 + 610 * SECOND) for rank in range(0, ranks, 3))]
    shuffled = random.Random(seed).sample(events, len(events))
    encode = msgspec.json.Encoder(order="sorted").encode
    assert encode(of_events(shuffled, COALESCING)) == encode(of_events(events, COALESCING))


def test_of_each_member_its_first_line_says_when() -> None:
    early, late = waited(3, "n0"), waited(3, "n0", at_ns=T0 + 650 * SECOND)
    (storm,) = of_events([late, *_waits(2), early], COALESCING)
    assert order(early, storm.crowd["3"]) == "concurrent"
    assert order(lost_gpu("n0"), storm.crowd["3"]) == "before"


def test_the_ranks_of_an_item_are_those_of_its_crowd_else_its_own() -> None:
    (storm,) = of_events(_waits(3), COALESCING)
    assert Resolved(episode=storm, subject=storm.subject, crowd_ranks=frozenset((0, 1, 2))).ranks == {0, 1, 2}
    (one,) = of_events([lost_gpu("n0")], COALESCING)
    assert Resolved(episode=one, subject=one.subject).ranks == frozenset()
