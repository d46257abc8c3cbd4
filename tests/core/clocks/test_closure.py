"""Several brokers, and who stepped."""

import random

from pipeline.core.clocks.closure import Bounds, Opening, between, between_brokers, on_clock_of, stepped_brokers

SECOND = 1_000_000_000


def test_each_further_broker_narrows_what_lies_between_two_events() -> None:
    a = {1: Bounds(1000, 1400), 2: Bounds(5000, 5300)}
    b = {1: Bounds(2000, 2400), 2: Bounds(6100, 6200), 3: Bounds(0, 1)}
    assert between({1: a[1]}, {1: b[1]}) == Bounds(-1400, -600)
    assert between(a, b) == Bounds(-1200, -800)


def test_without_a_common_broker_or_with_contradictory_ones_nothing_is_said() -> None:
    assert between({1: Bounds(0, 1)}, {2: Bounds(0, 1)}) is None
    assert between({1: Bounds(0, 1), 2: Bounds(50, 51)}, {1: Bounds(0, 1), 2: Bounds(0, 1)}) is None


def test_true_differences_are_within_the_bounds_of_brokers_and_chains_of_them() -> None:
    rng = random.Random(1)
    for _ in range(200):
        skews = {broker: rng.randrange(-(10**9), 10**9) for broker in range(5)}
        readings = []
        for node in range(12):
            now = 10**18 + node * SECOND
            readings.append(
                {
                    broker: Bounds(
                        now + skews[broker] - rng.randrange(10**6), now + skews[broker] + rng.randrange(10**6)
                    )
                    for broker in rng.sample(range(5), 2)
                }
            )
        found = between_brokers(readings)
        assert found is not None
        for (i, j), apart in found.items():
            assert apart.lo_ns <= skews[i] - skews[j] <= apart.hi_ns
            assert found[j, i] == Bounds(-apart.hi_ns, -apart.lo_ns)
        for node, reading in enumerate(readings):
            dated = on_clock_of(0, reading, found)
            if dated is not None:
                assert dated.lo_ns <= 10**18 + node * SECOND + skews[0] <= dated.hi_ns


def test_a_node_that_talks_to_one_broker_is_dated_by_another_through_a_node_that_talks_to_both() -> None:
    brokers = between_brokers([{1: Bounds(100, 110), 2: Bounds(200, 220)}])
    assert brokers is not None
    assert on_clock_of(1, {2: Bounds(500, 510)}, brokers) == Bounds(380, 420)
    assert on_clock_of(3, {2: Bounds(500, 510)}, brokers) is None


def test_readings_of_one_moment_that_contradict_each_other_show_a_broker_that_stepped() -> None:
    same = {1: Bounds(0, 10), 2: Bounds(0, 10)}
    assert between_brokers([same, {1: Bounds(0, 10), 2: Bounds(1000, 1010)}]) is None


def test_a_broker_stepped_if_most_of_its_nodes_saw_it_within_seconds() -> None:
    saw = [Opening(broker=1, node=f"n{k}", at_ns=k * SECOND) for k in range(5)]
    assert stepped_brokers(saw, {1: 9}) == {1: 0}
    assert stepped_brokers(saw, {1: 10}) == {}
    late = [Opening(broker=1, node=f"n{k}", at_ns=k * 4 * SECOND) for k in range(5)]
    assert stepped_brokers(late, {1: 9}) == {}
    twice = [Opening(broker=1, node="n", at_ns=k) for k in range(5)]
    assert stepped_brokers(twice, {1: 1}) == {}
