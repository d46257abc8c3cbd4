"""When the map of who runs where is made anew, and when the last one will do."""

import pytest

from pipeline.core.placement import Facts
from pipeline.core.placement_kept import PlacementKept
from schemas.records import Event
from tests.strategies import SECOND, T0, waited


@pytest.fixture(autouse=True)
def _two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.core.placement_kept.MANY_CLAIMS", 2)


def _facts(*events: Event) -> Facts:
    facts = Facts()
    for event in events:
        facts.learn(event)
    return facts


def test_of_a_large_job_the_map_is_kept_until_something_new_is_said() -> None:
    facts, kept = _facts(*(waited(rank, "n0") for rank in range(4))), PlacementKept()
    first = kept.map(facts, [], T0, final=False)
    facts.learn(waited(1, "n0", at_ns=T0 + 700 * SECOND))
    assert kept.map(facts, [], T0 + SECOND, final=False) is first
    facts.learn(waited(9, "n1"))
    assert 9 in kept.map(facts, [], T0 + SECOND, final=False).ranks


def test_what_is_final_or_small_is_worked_out_of_all() -> None:
    facts, kept = _facts(*(waited(rank, "n0") for rank in range(4))), PlacementKept()
    assert kept.map(facts, [], T0, final=False) is not kept.map(facts, [], T0, final=True)
    small = _facts(waited(0, "n0"))
    assert kept.map(small, [], T0, final=False) is not kept.map(small, [], T0, final=False)


def test_another_name_that_is_preferred_is_news() -> None:
    facts, kept = _facts(*(waited(rank, "n0") for rank in range(4))), PlacementKept()
    assert kept.map(facts, [], T0, final=False) is not kept.map(facts, ["n0"], T0, final=False)


def test_it_is_made_ahead_at_its_pace_and_asked_for_once_a_second() -> None:
    facts, kept = _facts(*(waited(rank, "n0") for rank in range(4))), PlacementKept()
    assert kept.is_due(facts, 5 * SECOND, T0)
    assert not kept.is_due(facts, 5 * SECOND, T0 + SECOND // 2)
    kept.map(facts, [], T0 + SECOND, final=False)
    assert not kept.is_due(facts, 5 * SECOND, T0 + 3 * SECOND)
    assert kept.is_due(facts, 5 * SECOND, T0 + 7 * SECOND)
    assert not kept.is_due(_facts(), 0, T0 + 99 * SECOND)
