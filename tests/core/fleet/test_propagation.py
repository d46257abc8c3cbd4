"""Which errors are followed by which: where, how often, and only as far as clocks can order them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pipeline.core.fleet.propagation import Propagation, Sighting, propagation, wilson
from pipeline.core.order import BROKERS_APART_NS, lag_ns, sureness
from tests.strategies import SECOND, T0, event

MS = SECOND // 1_000
WITHIN_NS = 5 * SECOND


def _seen(
    kind: str, at_ns: int | None, *, node: str = "alpha", unit: str = "GPU-1", groups: tuple[str, ...] = ("job 7",),
    bound_ns: int = 0, u99_ns: int | None = None, broker: int | None = None,
) -> Sighting:  # fmt: skip
    one = event(kind, node=node, at_ns=at_ns, bound_ns=bound_ns, offset=0 if at_ns is None else at_ns - T0)
    one = structs.replace(one, u99_ns=u99_ns, reference_broker=broker)
    return Sighting(kind=kind, unit=unit, node=node, groups=groups, event=one)


def _row(sightings: list[Sighting], cause: str = "a", effect: str = "b", within_ns: int = WITHIN_NS) -> Propagation:
    (found,) = [r for r in propagation(sightings, within_ns) if (r.cause, r.effect) == (cause, effect)]
    return found


def test_the_share_of_causes_that_were_followed_with_its_interval() -> None:
    causes = [_seen("a", T0 + 100 * n * SECOND) for n in range(10)]
    effects = [_seen("b", T0 + 100 * n * SECOND + 50 * MS) for n in range(8)]
    row = _row(causes + effects)
    assert (row.sources, row.followed, row.share, row.same_unit, row.concurrent) == (10, 8, 0.8, 8, 0)
    # Wilson, by hand: middle (0.8 + 0.19207) / 1.38415, half-width 0.22648.
    assert [row.lo, row.hi] == pytest.approx([0.49016, 0.94332], abs=1e-5)


def test_an_effect_is_told_by_where_it_was() -> None:
    effects = [
        _seen("b", T0 + 1 * MS),
        _seen("b", T0 + 2 * MS, unit="GPU-2"),
        _seen("b", T0 + 3 * MS, unit="GPU-9", node="beta"),
    ]
    row = _row([_seen("a", T0), *effects])
    assert (row.followed, row.same_unit, row.same_node, row.other_node) == (1, 1, 1, 1)
    assert [_row([_seen("a", T0), one]).same_node for one in effects] == [0, 1, 0]


def test_nodes_that_have_nothing_in_common_are_not_looked_at() -> None:
    assert propagation([_seen("a", T0), _seen("b", T0 + MS, node="beta", groups=("job 8",))], WITHIN_NS) == []
    assert propagation([_seen("a", T0, groups=()), _seen("b", T0 + MS, node="beta", groups=())], WITHIN_NS) == []
    assert propagation([_seen("a", T0, groups=("beta",)), _seen("b", T0 + MS, node="beta", groups=())], WITHIN_NS) == []


def test_a_node_in_two_groups_counts_once() -> None:
    groups = ("job 7", "nvlink 1")
    row = _row([_seen("a", T0, groups=groups), _seen("b", T0 + MS, node="beta", unit="GPU-9", groups=groups)])
    assert (row.followed, row.other_node) == (1, 1)
    at_once = _seen("b", T0, node="beta", unit="GPU-9", groups=groups, bound_ns=MS, u99_ns=MS)
    assert _row([_seen("a", T0, groups=groups, bound_ns=MS, u99_ns=MS), at_once]).by_odds == 0.5


def test_what_came_before_is_no_effect_and_is_told() -> None:
    row = _row([_seen("a", T0), _seen("b", T0 - MS)])
    assert (row.followed, row.preceded, row.concurrent, row.share) == (0, 1, 0, 0.0)


def test_what_came_later_than_the_window_is_no_effect() -> None:
    assert propagation([_seen("a", T0), _seen("b", T0 + WITHIN_NS + 1)], WITHIN_NS) == []
    assert _row([_seen("a", T0), _seen("b", T0 + WITHIN_NS)]).followed == 1


def test_bounds_that_overlap_are_concurrent_whichever_reading_is_smaller() -> None:
    for ahead_ns in (3 * MS, -3 * MS):
        row = _row([_seen("a", T0, bound_ns=2 * MS), _seen("b", T0 + ahead_ns, node="beta", bound_ns=2 * MS)])
        assert (row.followed, row.preceded, row.concurrent) == (0, 0, 1)


def test_what_is_probable_counts() -> None:
    row = _row([
        _seen("a", T0, bound_ns=2 * MS, u99_ns=MS),
        _seen("b", T0 + 3 * MS, node="beta", bound_ns=2 * MS, u99_ns=MS),
    ])  # fmt: skip
    assert (row.followed, row.concurrent) == (1, 0)


def test_what_is_concurrent_counts_by_its_odds_apart_from_the_share() -> None:
    def table(ahead_ns: int, u99_ns: int | None) -> Propagation:
        return _row([
            _seen("a", T0, bound_ns=9 * MS, u99_ns=u99_ns),
            _seen("b", T0 + ahead_ns, node="beta", bound_ns=9 * MS, u99_ns=u99_ns),
        ])  # fmt: skip

    later, at_once, before = table(2 * MS, 2 * MS), table(0, 2 * MS), table(-2 * MS, 2 * MS)
    # Two errors of 2 ms in 99 of 100 cases each: sigma of the gap is 1.098 ms.
    assert [one.by_odds for one in (later, at_once, before)] == pytest.approx([0.96573, 0.5, 0.03427], abs=1e-4)
    assert [one.share for one in (later, at_once, before)] == [0.0, 0.0, 0.0]
    assert table(2 * MS, None).by_odds == 0.0


def test_two_that_may_be_effects_are_likelier_than_one() -> None:
    def near(unit: str, node: str) -> Sighting:
        return _seen("b", T0, node=node, unit=unit, bound_ns=MS, u99_ns=MS)

    row = _row([_seen("a", T0, bound_ns=MS, u99_ns=MS), near("GPU-2", "beta"), near("GPU-3", "gamma")])
    assert (row.by_odds, row.concurrent) == (0.75, 1)


def test_a_source_with_a_certain_effect_is_not_called_concurrent_for_another() -> None:
    row = _row([_seen("a", T0, bound_ns=MS), _seen("b", T0 + MS, node="beta", bound_ns=MS), _seen("b", T0 + MS)])
    assert (row.followed, row.concurrent) == (1, 0)


def test_times_by_two_brokers_are_compared_as_far_as_brokers_agree() -> None:
    near = [_seen("a", T0, broker=1), _seen("b", T0 + BROKERS_APART_NS - 1, node="beta", broker=2)]
    assert _row(near).concurrent == 1
    assert _row(near, within_ns=SECOND).concurrent == 1
    far = [_seen("a", T0, broker=1), _seen("b", T0 + BROKERS_APART_NS + 1, node="beta", broker=2)]
    assert _row(far, within_ns=2 * BROKERS_APART_NS).followed == 1


def test_sightings_without_a_time_are_said_and_neither_causes_nor_effects() -> None:
    row = _row([_seen("a", T0), _seen("b", T0 + MS), _seen("a", None), _seen("b", None, node="beta")])
    assert (row.sources, row.followed, row.untimed) == (1, 1, 1)


def test_one_kind_may_spread_to_its_neighbours_but_is_not_its_own_effect() -> None:
    spread = [_seen("a", T0), _seen("a", T0 + MS, unit="GPU-2"), _seen("a", T0 + 900 * SECOND, unit="GPU-3")]
    row = _row(spread, "a", "a")
    assert (row.sources, row.followed, row.preceded, row.same_node, row.same_unit) == (3, 1, 1, 1, 0)


def test_one_gpu_with_most_of_the_sources_is_said() -> None:
    causes = [_seen("a", T0 + 100 * n * SECOND, unit="GPU-9" if n < 9 else "GPU-1") for n in range(10)]
    assert _row([*causes, _seen("b", T0 + MS)]).top_share == 0.9


def test_a_share_of_nothing_and_of_everything_has_an_interval() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert list(wilson(0, 10)) == pytest.approx([0.0, 0.27753], abs=1e-5)
    assert list(wilson(10, 10)) == pytest.approx([0.72247, 1.0], abs=1e-5)


def _by_hand(seen: list[Sighting], within_ns: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Followed and concurrent, every source with every other."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for a in seen:
        near = [b for b in seen if b is not a and (b.node == a.node or {*a.groups} & {*b.groups})]
        for kind in "ab":
            follows = unsure = False
            for b in (b for b in near if b.kind == kind):
                lag = lag_ns(a.event, b.event)
                assert lag is not None
                if sureness(a.event, b.event)[0] != "concurrent":
                    follows |= sum(lag) // 2 <= within_ns
                elif sureness(b.event, a.event)[0] == "concurrent":
                    unsure |= lag[1] > 0 and lag[0] <= within_ns
            followed, concurrent = counts.get((a.kind, kind), (0, 0))
            counts[a.kind, kind] = (followed + follows, concurrent + (unsure and not follows))
    return {pair: count for pair, count in counts.items() if any(count)}


sightings = st.builds(
    lambda kind, at, node, gpu, groups, bound, u99, broker: _seen(
        kind, T0 + at * MS, node=f"n{node}", unit=f"GPU-{node}-{gpu}", groups=tuple(groups), bound_ns=bound * MS,
        u99_ns=u99 * MS, broker=broker,
    ),
    st.sampled_from("ab"), st.integers(-20_000, 20_000), st.integers(0, 3), st.integers(0, 1),
    st.lists(st.sampled_from(["job 7", "job 8", "nvlink 1"]), max_size=2, unique=True),
    st.sampled_from([0, 5, 500, 5_000]), st.integers(0, 300), st.sampled_from([1, 1, 1, 2]),
)  # fmt: skip


@given(st.lists(sightings, max_size=14), st.sampled_from([SECOND, WITHIN_NS]))
def test_the_table_is_what_comparing_every_pair_gives(seen: list[Sighting], within_ns: int) -> None:
    table = {(row.cause, row.effect): (row.followed, row.concurrent) for row in propagation(seen, within_ns)}
    assert {pair: count for pair, count in table.items() if any(count)} == _by_hand(seen, within_ns)


def test_a_storm_on_every_gpu_of_a_job_is_counted_in_seconds() -> None:
    storm = [
        _seen("a", T0 + n * MS // 10, node=f"n{n // 8}", unit=f"GPU-{n}", bound_ns=MS, u99_ns=MS) for n in range(4_000)
    ]
    began_s = time.process_time()
    row = _row([*storm, _seen("b", T0 + 4 * SECOND, node="n0", bound_ns=MS, u99_ns=MS)])
    assert time.process_time() - began_s < 20, "every pair of 4,000 takes a minute"
    assert (row.sources, row.followed) == (4_000, 4_000)
    spread = _row(storm, "a", "a")
    # A node's own clock orders its eight; between nodes gaps above 1.41 ms are probable. That leaves the last GPU of
    # the last two nodes, and the first of the first two.
    assert (spread.followed, spread.preceded, spread.concurrent) == (3_998, 3_998, 2)


@given(st.permutations(range(8)), st.lists(st.integers(-3_000, 3_000), min_size=8, max_size=8), st.integers(0, 500))
def test_any_order_of_sightings_gives_the_same_table(mixed: list[int], ms: list[int], bound_ms: int) -> None:
    seen = [
        _seen("ab"[n % 2], T0 + at * MS, node=f"n{n % 3}", unit=f"GPU-{n}", bound_ns=bound_ms * MS)
        for n, at in enumerate(ms)
    ]
    table = propagation(seen, SECOND)
    assert propagation([seen[n] for n in mixed], SECOND) == table
    for row in table:
        assert row.followed + row.concurrent <= row.sources
        assert max(row.same_unit, row.same_node, row.other_node) <= row.followed
        assert row.lo <= row.share <= row.hi
        assert row.share <= row.by_odds <= 1
