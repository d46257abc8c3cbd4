"""What a report says of the clocks of a folder."""

from msgspec.structs import replace

from pipeline.core.content_clock.solve import NOTHING, ONE_SET, Denied
from pipeline.core.content_clock.stepped import Change
from pipeline.folder_clocks import WallClock
from pipeline.report.alignment_words import clock_lines
from pipeline.report.words import gap_line
from schemas.records import Gap

MS, SECOND = 1_000_000, 1_000_000_000


def test_nothing_known_is_nothing_said() -> None:
    assert clock_lines(NOTHING, [], 3) == []


def test_a_slow_rank_is_not_accused_of_a_set_clock() -> None:
    """Both are said, and that the bounds cover both."""
    moved = [
        Change(nodes=("a",), ns=100 * MS, spread_ns=110 * MS),
        Change(nodes=("a", "b"), ns=-100 * MS, spread_ns=110 * MS),
    ]

    one, other = clock_lines(replace(NOTHING, moved=moved), [], 2)

    assert one == (
        "a: its lines come about 100 ms later than before from some moment on, or its clock was set ahead by that; "
        "bounds are wider by 110 ms, so that both may be"
    )
    assert other.startswith("a or b: the lines of one of them come about 100 ms later or earlier than before")


def test_two_of_which_nobody_knows_whose_clock_was_set_share_a_line() -> None:
    lines = clock_lines(replace(NOTHING, left_out={"a": ONE_SET, "b": ONE_SET}), [], 2)

    assert len(lines) == 1
    assert lines[0].startswith("a, b: not aligned by what they log: the clock of one of the two was set")


def test_of_many_stated_clocks_that_do_not_fit_the_worst_are_named() -> None:
    denied = [Denied(one="a", other=f"n{number}", ns=SECOND) for number in range(5)]

    lines = clock_lines(replace(NOTHING, denied=denied), [], 6)

    assert [line.split()[6] for line in lines[:3]] == ["n0", "n1", "n2"]
    assert lines[3] == "… and 2 more pairs of stated clocks"


def test_measured_clocks_are_summed_up() -> None:
    """Whose wall clock is off most, and whose was stepped."""
    recorded = [
        WallClock(node="a", offset_ns=2 * SECOND, stepped_ns=0),
        WallClock(node="b", offset_ns=-4 * SECOND, stepped_ns=-3 * SECOND),
        WallClock(node="c", offset_ns=None, stepped_ns=0),
    ]

    assert clock_lines(NOTHING, recorded, 4) == [
        "clocks were measured on 3 of 4 nodes; the wall clock of b was off most at the end, 4 s ahead; wall clocks "
        "that were stepped: b (by 3 s)"
    ]


def test_a_gap_of_a_node_itself_does_not_name_it_twice() -> None:
    assert gap_line(Gap(source="n1", node="n1", reason="lost")) == "n1: lost"
    assert gap_line(Gap(source="kern.log", node="n1", reason="lost")) == "kern.log on n1: lost"
