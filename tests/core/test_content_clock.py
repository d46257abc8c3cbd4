"""Clocks aligned by the events that several nodes log."""

from itertools import combinations
from random import Random

import pytest

from pipeline.core.content_clock.bounds import FAR, close, most_late, radii
from pipeline.core.content_clock.meetings import Mark, MarkKind
from pipeline.core.content_clock.solve import CONTENT, ONE_SET, SET, SET_OR_LATER, Alignment, align
from pipeline.core.times import DEFAULT_BOUND_NS, at_wall
from schemas.records import ClockClaim

MS, SECOND = 1_000_000, 1_000_000_000
T0 = 1_772_600_000 * SECOND
# What a clock shows is true time less its offset.
OFFSETS = {"a": 0, "b": -1_400 * MS, "c": 900 * MS}


def _mark(
    node: str, at_ns: int, number: int, kind: MarkKind = "together", *, resolution_ns: int = MS, ppm: float = 0,
    follows: bool = True, jump_ns: int = 0,
) -> Mark:  # fmt: skip
    shown = at_ns - OFFSETS[node] - jump_ns + round((at_ns - T0) * ppm * 1e-6)
    return Mark(
        node=node, source=f"{node}.log", series="steps", number=str(number), kind=kind,
        wall_ns=shown // resolution_ns * resolution_ns, resolution_ns=resolution_ns, follows=follows,
    )  # fmt: skip


def _steps(
    r: Random, count: int = 200, nodes: str = "abc", *, resolution_ns: int = MS, set_: str = "", ppm: float = 0
) -> list[Mark]:
    """Steps of 1 s or so that each node prints within 2 ms, but for pauses of up to 80 ms in one of 50 lines."""
    marks = []
    for number in range(count):
        at_ns = T0 + number * SECOND + r.randrange(100 * MS)
        for node in nodes:
            late_ns = r.randrange(2 * MS) + (r.randrange(80 * MS) if r.random() < 0.02 else 0)
            jump_ns = 3 * SECOND if node == set_ and number > count // 2 else 0
            run = ppm if node == "b" else 0
            marks.append(_mark(node, at_ns + late_ns, number, resolution_ns=resolution_ns, ppm=run, jump_ns=jump_ns))
    return marks


def _worst(found: Alignment, nodes: str, at_ns: int, *, ppm: float = 0) -> tuple[int, int]:
    """By how much the worst pair is outside its bounds (negative: inside), and the widest half-width of a pair."""
    shown = {node: at_ns - OFFSETS[node] + round((at_ns - T0) * (ppm if node == "b" else 0) * 1e-6) for node in nodes}
    outside, widest = -FAR, 0
    for one, other in combinations(nodes, 2):
        (a_ns, a_bound), (b_ns, b_bound) = (at_wall(found.claims[node], shown[node]) for node in (one, other))
        off_ns = abs((a_ns - b_ns) - (shown[other] - shown[one]))
        outside, widest = max(outside, off_ns - a_bound - b_bound), max(widest, a_bound + b_bound)
    return outside, widest


@pytest.mark.parametrize("resolution_ns", [1, MS, SECOND])
@pytest.mark.parametrize("ppm", [0, -90, 60])
def test_steps_that_all_print_bind_the_clocks_at_any_moment(resolution_ns: int, ppm: float) -> None:
    """The true differences are inside the bounds, which are hardly wider than the stamps are coarse."""
    marks = _steps(Random(f"{resolution_ns}/{ppm}"), resolution_ns=resolution_ns, ppm=ppm)

    found = align(marks, "abc", {}, DEFAULT_BOUND_NS)

    assert found.nodes == ["a", "b", "c"]
    for second in (0, 7, 100, 193, 200):
        outside, widest = _worst(found, "abc", T0 + second * SECOND, ppm=ppm)
        assert outside <= 0
        assert widest <= 1.5 * resolution_ns + 20 * MS


def test_what_is_known_of_a_clock_gets_less_behind_the_last_event() -> None:
    """Ten minutes later it is still right, and wider."""
    found = align(_steps(Random(1), ppm=-90), "abc", {}, DEFAULT_BOUND_NS)

    near, far = (_worst(found, "abc", T0 + second * SECOND, ppm=-90) for second in (150, 800))

    assert near[0] <= 0 >= far[0]
    assert far[1] > near[1]


def test_too_few_events_say_nothing() -> None:
    """Of sixteen lines too many may have been late on one node by chance."""
    assert align(_steps(Random(1), 16), "abc", {}, DEFAULT_BOUND_NS).claims == {}


def test_nobody_leaves_before_all_have_entered() -> None:
    """One event is enough where it binds for certain: an entry and an exit on either side."""
    marks = [
        _mark("a", T0, 1, "enter"), _mark("b", T0 + 300 * MS, 1, "enter"),
        _mark("a", T0 + 400 * MS, 1, "leave"), _mark("b", T0 + 500 * MS, 1, "leave"),
    ]  # fmt: skip

    found = align(marks, "ab", {}, DEFAULT_BOUND_NS)

    assert _worst(found, "ab", T0)[0] <= 0
    assert _worst(found, "ab", T0)[1] == pytest.approx(300 * MS, abs=3 * MS)


def test_entries_without_an_exit_say_nothing() -> None:
    """When two began to wait for each other bounds nothing."""
    assert align([_mark("a", T0, 1, "enter"), _mark("b", T0, 1, "enter")], "ab", {}, DEFAULT_BOUND_NS).claims == {}


@pytest.mark.parametrize("node", ["a", "b", "c"])
@pytest.mark.parametrize("resolution_ns", [MS, SECOND])
def test_a_clock_that_is_set_is_left_out_and_said(node: str, resolution_ns: int) -> None:
    """The other two stay bound to each other, whichever it is."""
    found = align(_steps(Random(node), set_=node, resolution_ns=resolution_ns), "abc", {}, DEFAULT_BOUND_NS)

    rest = "abc".replace(node, "")
    assert list(found.left_out) == [node]
    assert found.nodes == list(rest)
    assert all(_worst(found, rest, T0 + second * SECOND)[0] <= 0 for second in (0, 99, 101, 199))


@pytest.mark.parametrize("node", ["a", "b"])
def test_of_two_the_one_that_leaves_its_own_cadence_was_set(node: str) -> None:
    """The steps of the other go on as they did."""
    found = align(_steps(Random(node), nodes="ab", set_=node), "ab", {}, DEFAULT_BOUND_NS)

    assert found.left_out == {node: SET}
    assert found.claims == {}


def _slow(r: Random, count: int, nodes: str, late: str, late_ns: int, *, pace_ns: int = SECOND) -> list[Mark]:
    """Steps of which one node prints those of the second half later; some steps take longer where `pace_ns` is long."""
    marks, at_ns = [], T0
    for number in range(count):
        at_ns += pace_ns + (r.randrange(4 * pace_ns) if pace_ns > SECOND and r.random() < 0.4 else r.randrange(9 * MS))
        for node in nodes:
            more_ns = late_ns if node == late and number >= count // 2 else 0
            marks.append(_mark(node, at_ns + r.randrange(2 * MS) + more_ns, number, follows=number % 2 == 0))
    return marks


@pytest.mark.parametrize("node", ["a", "b"])
def test_of_two_without_a_regular_cadence_nobody_tells_which_clock_was_set(node: str) -> None:
    """Both are left out, and neither is accused."""
    found = align(_slow(Random(1), 200, "ab", node, 6 * SECOND, pace_ns=2 * SECOND), "ab", {}, DEFAULT_BOUND_NS)

    assert found.left_out == {"a": ONE_SET, "b": ONE_SET}
    assert found.claims == {}


def _outside(found: Alignment, nodes: str, at_ns: int, moved: dict[str, int]) -> int:
    """By how much the worst pair is outside its bounds where clocks were set ahead by so much before (negative: in)."""
    shown = {node: at_ns - OFFSETS[node] + moved.get(node, 0) for node in nodes}
    known = {node: at_wall(found.claims[node], shown[node]) for node in nodes}
    return max(
        abs((known[i][0] - known[j][0]) - (shown[j] - shown[i])) - known[i][1] - known[j][1]
        for i, j in combinations(nodes, 2)
    )


@pytest.mark.parametrize("nodes", ["ab", "abc"])
@pytest.mark.parametrize("late_ms", [50, 200, 700, -300])
def test_who_prints_later_from_some_step_on_is_kept_with_bounds_that_are_true_either_way(
    nodes: str, late_ms: int
) -> None:
    """It was slower, or its clock was set: nothing in the logs tells which, so both are within the bounds."""
    for seed, late in enumerate(nodes * 4):
        count = 60 + 31 * seed
        found = align(_slow(Random(seed), count, nodes, late, late_ms * MS), nodes, {}, DEFAULT_BOUND_NS)

        assert found.left_out == {}
        assert found.nodes == list(nodes)
        assert late in found.moved[0].nodes
        for at_ns in range(T0, T0 + count * SECOND, 5 * SECOND):
            assert _outside(found, nodes, at_ns, {}) <= 0
            is_moved = at_ns > T0 + (count // 2) * SECOND * 1.01
            assert _outside(found, nodes, at_ns, {late: late_ms * MS} if is_moved else {}) <= 0
            assert max(at_wall(found.claims[node], at_ns - OFFSETS[node])[1] for node in nodes) < 1.5 * SECOND


def test_a_change_that_a_slow_rank_may_show_is_not_told_as_a_set_clock_however_large_it_is() -> None:
    """With steps of ten seconds a rank may be four later: too much to tell anything of its clock."""
    marks = _slow(Random(2), 100, "abc", "b", 4 * SECOND, pace_ns=10 * SECOND)

    assert align(marks, "abc", {}, DEFAULT_BOUND_NS).left_out == {"b": SET_OR_LATER}


@pytest.mark.parametrize("others", ["", "c"])
def test_claims_that_the_logs_contradict_are_said_and_win(others: str) -> None:
    """What is stated of one is 4 s wrong: it contradicts each other one of which something is stated."""
    claims = {
        node: ClockClaim(offset_ns=OFFSETS[node] + (4 * SECOND if node == "b" else 0), bound_ns=MS, by="rootrank.toml")
        for node in "abc".replace(others, "") or "abc"
    }

    found = align(_steps(Random(1)), "abc", claims, DEFAULT_BOUND_NS)

    pairs = {frozenset((denied.one, denied.other)) for denied in found.denied}
    assert pairs == {frozenset(pair) for pair in (["ab"] if others else ["ab", "bc"])}
    assert all(denied.ns == pytest.approx(4 * SECOND, abs=20 * MS) for denied in found.denied)
    assert not found.claims.keys() & claims.keys()


def test_claims_that_fit_the_logs_are_not_doubted() -> None:
    """What is stated within a millisecond of the truth."""
    claims = {node: ClockClaim(offset_ns=OFFSETS[node], bound_ns=MS, by="rootrank.toml") for node in "abc"}

    assert align(_steps(Random(1)), "abc", claims, DEFAULT_BOUND_NS).denied == []


def test_how_far_apart_clocks_are_at_most_is_known() -> None:
    """b is 1.4 s ahead, c is 0.9 s behind."""
    widest = align(_steps(Random(1)), "abc", {}, DEFAULT_BOUND_NS).widest

    assert widest is not None
    assert (widest.ahead, widest.behind) == ("b", "c")
    assert abs(widest.ns - 2_300 * MS) <= widest.within_ns < 20 * MS


def test_those_who_print_whenever_they_like_are_not_bound() -> None:
    """Lines of one number that are seconds apart, now this way and now that, are not of one event."""
    r = Random(3)
    marks = [_mark(node, T0 + n * SECOND + r.randrange(4 * SECOND), n) for n in range(200) for node in "ab"]

    assert align(marks, "ab", {}, DEFAULT_BOUND_NS).claims == {}


def test_lines_that_are_stamped_when_a_buffer_is_full_bind_nobody() -> None:
    """Containers whose output is not flushed: eight lines at once, on each node when its own buffer is full."""
    for seed in range(20):
        r = Random(seed)
        full = {node: r.randrange(4 * SECOND) for node in "abc"}
        marks = [
            _mark(
                node, ((T0 + number * SECOND // 2 + full[node]) // (4 * SECOND) + 1) * 4 * SECOND - full[node], number
            )
            for number in range(200)
            for node in "abc"
        ]

        assert align(marks, "abc", {}, DEFAULT_BOUND_NS).claims == {}


def test_steps_that_are_shorter_than_stamps_are_coarse_are_no_buffer() -> None:
    """Several steps a second, stamped by the second."""
    marks = []
    for number in range(400):
        at_ns = T0 + number * 300 * MS
        marks += [_mark(node, at_ns, number, resolution_ns=SECOND) for node in "abc"]

    assert align(marks, "abc", {}, DEFAULT_BOUND_NS).nodes == ["a", "b", "c"]


def test_a_step_that_a_node_prints_twice_is_not_compared() -> None:
    """After a restart nobody knows which of the two the others mean."""
    marks = _steps(Random(1), 17, "ab")
    again = [_mark("a", T0 + 900 * SECOND, 3)]

    assert align(marks, "ab", {}, DEFAULT_BOUND_NS).nodes == ["a", "b"]
    assert align([*marks, *again], "ab", {}, DEFAULT_BOUND_NS).claims == {}


def test_who_logs_none_of_the_events_is_less_certain_against_those_who_do() -> None:
    """The timeline of the others is within 5 s of the true one, and so is the clock of whoever is outside."""
    found = align(_steps(Random(1)), ["a", "b", "c", "other"], {}, DEFAULT_BOUND_NS)

    outside = found.claims["other"]
    assert (outside.by, outside.knots) == ("default", [])
    assert DEFAULT_BOUND_NS < outside.bound_ns <= 2 * DEFAULT_BOUND_NS + 100 * MS
    assert outside.others_bound_ns == found.claims["a"].others_bound_ns == outside.bound_ns
    for node in "abc":
        offset_ns, bound_ns = at_wall(found.claims[node], T0)
        assert abs(offset_ns - OFFSETS[node]) + bound_ns <= outside.bound_ns


def test_more_outside_than_inside_leaves_all_as_they_are() -> None:
    """A narrow bound of two is not worth a wider one of three."""
    assert align(_steps(Random(1), nodes="ab"), ["a", "b", "x", "y", "z"], {}, DEFAULT_BOUND_NS).claims == {}


def test_a_claim_is_kept_and_the_others_follow_it() -> None:
    """What is stated of one clock is the timeline for those that are bound to it; nobody else is touched."""
    stated = {"a": ClockClaim(offset_ns=50 * SECOND, bound_ns=10 * MS, by="rootrank.toml")}

    found = align(_steps(Random(1)), ["a", "b", "c", "other"], stated, DEFAULT_BOUND_NS)

    assert sorted(found.claims) == found.nodes == ["b", "c"]
    for node in "bc":
        offset_ns, bound_ns = at_wall(found.claims[node], T0 + 100 * SECOND)
        assert abs(offset_ns - OFFSETS[node] - 50 * SECOND) <= bound_ns <= 20 * MS
        assert found.claims[node].by == CONTENT


def test_clocks_that_seem_further_off_than_any_clock_is_taken_to_be_are_said() -> None:
    """Another attempt of the job prints the same steps hours later: nothing is concluded from that."""
    late = [_mark("c", T0 + 3_600 * SECOND + number * SECOND, number) for number in range(200)]

    found = align([*_steps(Random(1), nodes="ab"), *late], "abc", {}, DEFAULT_BOUND_NS)

    assert "c" in found.left_out
    assert found.nodes == ["a", "b"]


def test_bounds_follow_from_bounds_of_others_and_contradictions_show() -> None:
    """The way round through a third may be shorter; a way round to oneself that is negative cannot be."""
    bounds = [[0, 5, FAR], [5, 0, -3], [FAR, 4, 0]]
    assert close(bounds)
    assert bounds[0][2] == 2
    assert not close([[0, 1, FAR], [FAR, 0, 1], [-3, FAR, 0]])


def test_radii_of_each_two_cover_what_their_difference_may_be() -> None:
    """So some shift of the timeline brings each clock within its radius, whatever the offsets are."""
    r = Random(5)
    for _ in range(200):
        truth = [r.randrange(-50, 50) for _ in range(4)]
        bounds = [[0 if i == j else truth[i] - truth[j] + r.randrange(9) for j in range(4)] for i in range(4)]
        close(bounds)
        middles = [(bounds[i][0] - bounds[0][i]) // 2 for i in range(4)]
        wide = radii(bounds, middles)
        off = [true - middle for true, middle in zip(truth, middles, strict=True)]
        low = max(o - w for o, w in zip(off, wide, strict=True))
        assert low <= min(o + w for o, w in zip(off, wide, strict=True))


def test_how_many_lines_may_be_late_by_chance() -> None:
    """Where one in twenty is late, more than these are less than once in 100,000 times."""
    assert (most_late(17), most_late(24), most_late(100)) == (6, 8, 16)
