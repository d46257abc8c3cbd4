import itertools

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import RawLine
from shippers.config import Passing
from shippers.gate import PASSED_BYTES, PASSED_LINES, Gate, Passed
from tests.shippers.fakes import SECOND_NS

XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid=4711, GPU has fallen off the bus."
STEP = "step 100 loss 2.31"
FREE = {"max_lines_per_s": 0, "max_bytes_per_s": 0}
SIGNIFICANT = Passing(select="significant", context_lines=2, **FREE)


def lines(*bodies: str, first: int = 0) -> list[tuple[RawLine, int]]:
    return [
        (RawLine(seq=0, source="s", generation="g", offset=first + at, body=body), len(body) + 1)
        for at, body in enumerate(bodies)
    ]


def chat(count: int) -> list[str]:
    return [f"chatter {number}" for number in range(count)]


def bodies(passed: Passed) -> list[str]:
    return [line.body for line in passed.lines]


def told(passed: list[RawLine]) -> int:
    return sum(int(line.attributes.get(PASSED_LINES, "0")) for line in passed)


def test_significant_lines_go_on_with_those_around_them_and_say_how_much_was_passed_over() -> None:
    passed = Gate(SIGNIFICANT).take(lines(*chat(10), XID, *chat(10)), 0)

    assert bodies(passed) == ["chatter 8", "chatter 9", XID, "chatter 0", "chatter 1"]
    assert passed.lines[0].attributes == {PASSED_LINES: "8", PASSED_BYTES: str(8 * len("chatter 0\n"))}
    assert [line.attributes for line in passed.lines[1:]] == [{}, {}, {}, {}]
    assert passed.gaps == []


def test_context_reaches_over_the_borders_of_what_is_read_at_once() -> None:
    gate = Gate(SIGNIFICANT)
    found = [bodies(gate.take(lines(body, first=at), 0)) for at, body in enumerate([*chat(3), XID, *chat(4)])]

    assert found == [[], [], [], ["chatter 1", "chatter 2", XID], ["chatter 0"], ["chatter 1"], [], []]


def test_marks_of_progress_all_survive() -> None:
    printed = [body for number in range(50) for body in (*chat(20), f"step {number} loss 2.3")]
    passed = Gate(SIGNIFICANT).take(lines(*printed), 0)

    assert bodies(passed) == [f"step {number} loss 2.3" for number in range(50)]
    assert told(passed.lines) == 50 * 20


def test_an_indented_block_goes_on_to_its_end() -> None:
    block = ["Traceback (most recent call last):", *(f"    code of line {number}" for number in range(9))]
    passed = Gate(SIGNIFICANT).take(lines(*block, "chatter", "chatter", "chatter"), 0)

    assert bodies(passed) == block


def test_the_table_behind_a_head_goes_on_whole() -> None:
    head = "NAME         STATUS   ROLES    AGE   VERSION"
    rows = [f"gpu{number:02}        Ready    <none>   9d    v1.31.0" for number in range(30)]

    assert bodies(Gate(SIGNIFICANT).take(lines(head, *rows), 0)) == [head, *rows]


def test_a_line_now_and_then_shows_pace() -> None:
    gate = Gate(SIGNIFICANT)
    kept = [
        (second, line.attributes[PASSED_LINES])
        for second in range(35)
        for line in gate.take(lines("chatter", first=second), second * SECOND_NS).lines
    ]

    assert kept == [(10, "10"), (20, "9"), (30, "9")]


def test_the_last_lines_go_on_once_nothing_follows_them() -> None:
    gate = Gate(SIGNIFICANT)
    gate.take(lines(*chat(5)), 0)

    assert gate.quiet(9 * SECOND_NS) == []
    assert [line.body for line in gate.quiet(10 * SECOND_NS)] == ["chatter 3", "chatter 4"]
    assert gate.quiet(20 * SECOND_NS) == []


def test_what_was_not_told_yet_is_told_after_a_restart() -> None:
    gate = Gate(SIGNIFICANT)
    gate.take(lines(*chat(5)), 0)
    again = Gate(SIGNIFICANT, gate.memo())
    passed = again.take(lines(XID, first=5), 0)

    assert [(line.body, line.attributes[PASSED_LINES]) for line in passed.lines] == [(XID, "5")]


def test_a_wrong_memo_counts_nothing() -> None:
    assert Gate(SIGNIFICANT, "x,2").memo() == Gate(SIGNIFICANT, "nonsense").memo() == ""


def test_a_storm_is_shed_with_its_lines_and_bytes_counted_and_the_cause_gets_through() -> None:
    settings = Passing(max_lines_per_s=10, max_bytes_per_s=0, burst_s=1)
    storm = [f"connection {number} reset by somebody" for number in range(500)]
    printed = [*storm, XID, *storm]
    passed = Gate(settings).take(lines(*printed), 0)

    assert bodies(passed) == [*storm[:10], XID]
    (gap,) = passed.gaps
    assert (gap.lost_lines, gap.lost_bytes) == (990, sum(len(line) + 1 for line in printed[10:] if line != XID))
    assert (gap.from_offset, gap.to_offset) == (10, 1000)


def test_a_storm_of_lines_that_mean_something_leaves_room_for_another_shape() -> None:
    settings = Passing(max_lines_per_s=10, max_bytes_per_s=0, burst_s=1)
    storm = [f"NVRM: Xid (PCI:0000:5e:00): 31, pid={number}, name=python, Ch 00000008" for number in range(500)]
    passed = Gate(settings).take(lines(*storm, XID), 0)

    assert len(passed.lines) == 10 + 10 + 10 + 1  # the limit, as much again, the first of a shape, and the other one
    assert bodies(passed)[-1] == XID


def test_the_limit_is_of_time_and_comes_back() -> None:
    gate = Gate(Passing(max_lines_per_s=10, max_bytes_per_s=0, burst_s=1))
    counts = [len(gate.take(lines(*chat(100)), at * SECOND_NS // 2).lines) for at in (0, 1, 2, 20)]

    assert counts == [10, 5, 5, 10]


def test_bytes_are_limited_too() -> None:
    gate = Gate(Passing(max_lines_per_s=0, max_bytes_per_s=100, burst_s=1))

    assert len(gate.take(lines(*["x" * 49] * 10), 0).lines) == 2


def test_what_was_written_before_is_no_storm() -> None:
    gate = Gate(Passing(max_lines_per_s=1, burst_s=1))

    assert gate.admits(10**6, 10**9, 0, is_fresh=False)
    assert len(gate.take(lines(*chat(100)), 0, is_fresh=False).lines) == 100


bodies_of_logs = st.lists(st.sampled_from(["chatter", "  indented", XID, STEP, "Traceback (most recent call last):"]))


@given(bodies_of_logs, st.integers(1, 5), st.integers(0, 3), st.lists(st.integers(1, 5)), st.booleans())
def test_each_line_goes_on_or_is_counted_exactly_once(
    printed: list[str], context: int, rate: int, cuts: list[int], restarts: bool
) -> None:
    settings = Passing(
        select="significant", context_lines=context, max_lines_per_s=rate, max_bytes_per_s=0, burst_s=1, heartbeat_s=3
    )
    gate, every, at, mono_ns = Gate(settings), list[RawLine](), 0, 0
    lost = 0
    for cut in itertools.chain(cuts, itertools.repeat(7)):
        if at >= len(printed):
            break
        passed = gate.take(lines(*printed[at : at + cut], first=at), mono_ns)
        at, mono_ns = at + cut, mono_ns + SECOND_NS // 3
        every += passed.lines
        lost += sum(gap.lost_lines or 0 for gap in passed.gaps)
        if restarts and cut % 2:
            gate = Gate(settings, gate.memo())
    every += gate.quiet(mono_ns, is_over=True)
    waiting = int(gate.memo().partition(",")[0] or 0)

    assert len(every) + told(every) + lost + waiting == len(printed)
    assert [line.offset for line in every] == sorted({line.offset for line in every})
