"""Kernel stamps in raw time: certain from when lines were read, sharp where the agent marks the log."""

from random import Random

from pipeline.core.clocks.relation import KEPT, Relation

S = 1_000_000_000


def kernel(raw_ns: int, ppm: float) -> int:
    """A kernel clock that was 3 s behind raw at raw 0 and runs a little faster."""
    return raw_ns - 3 * S + round(raw_ns * ppm * 1e-6)


def test_lines_read_within_a_second_bound_each_other() -> None:
    random = Random(1)
    relation = Relation()
    for raw_ns in sorted(random.randrange(900 * S) for _ in range(300)):
        read_ns = raw_ns + random.randrange(S)
        relation.note(kernel(raw_ns, 35.0), read_ns - S - random.randrange(S // 10), read_ns)
    widths = []
    for raw_ns in range(0, 900 * S, 11 * S):
        found = relation.raw_of(kernel(raw_ns, 35.0))
        assert found is not None
        lo_ns, hi_ns = found
        assert lo_ns <= raw_ns <= hi_ns
        widths.append(hi_ns - lo_ns)
    assert sorted(widths)[len(widths) // 2] < S // 4


def test_marks_bound_stamps_between_them_to_milliseconds() -> None:
    relation = Relation()
    for raw_ns in range(0, 600 * S, 60 * S):
        relation.note(kernel(raw_ns + 10_000, -60.0), raw_ns, raw_ns + 30_000)
    for raw_ns in range(0, 540 * S, 7 * S):
        found = relation.raw_of(kernel(raw_ns, -60.0))
        assert found is not None
        lo_ns, hi_ns = found
        assert lo_ns <= raw_ns <= hi_ns
        assert hi_ns - lo_ns < 8_000_000


def test_a_clock_that_moves_more_than_crystals_do_is_related_to_nothing() -> None:
    relation = Relation()
    relation.note(100 * S, 200 * S, 200 * S + 1000)
    relation.note(300 * S, 500 * S, 500 * S + 1000)
    assert relation.raw_of(301 * S) is None


def test_nothing_is_related_without_a_moment_and_a_read_before_its_line_is_none() -> None:
    relation = Relation()
    assert relation.raw_of(5 * S) is None
    relation.note(5 * S, 9 * S, 8 * S)
    assert relation.raw_of(5 * S) is None


def test_its_size_is_bounded() -> None:
    relation = Relation()
    for minute in range(5 * KEPT):
        relation.note(minute * 60 * S, minute * 60 * S, minute * 60 * S + 1)
    assert len(relation.moments) == KEPT
