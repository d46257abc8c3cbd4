"""Lines of a node whose clocks are measured: bounds hold the truth, whatever its wall clock does."""

from itertools import pairwise

import msgspec
import pytest

from pipeline.core.align import NodeFold
from pipeline.core.order import order
from schemas.records import Progress, RawBatch
from tests.core.clocks.simulated import MS, SIGNALS, T0, S, Simulated


def run(node: Simulated, seconds: int, *, kernel: bool = False, first: int = 1) -> None:
    for second in range(first, first + seconds):
        at_ns = T0 + second * S
        node.write(at_ns - 700 * MS)
        node.write(at_ns - 300 * MS)
        if kernel:
            node.write(at_ns - 900 * MS, kernel=True)
        node.second(at_ns)


def test_every_event_is_within_its_bounds_and_they_are_about_a_millisecond_wide() -> None:
    node = Simulated(wall=((0, -3_600 * S),))
    run(node, 300)
    offs = [node.off(event) for event in node.events]
    assert len(offs) == 600
    assert all(lo <= 0 <= hi for lo, _, hi in offs)
    late = sorted(hi - lo for lo, _, hi in offs[200:])
    assert late[len(late) // 2] < 1_500_000
    best = sorted(abs(at) for _, at, _ in offs[200:])
    assert best[len(best) // 2] < 200_000
    assert {(e.reference_broker, e.quality, e.clock_epoch) for e in node.events[20:]} == {(1, "good", 0)}


@pytest.mark.parametrize("step_s", [-7_200, -5, 5, 7_200])
def test_a_step_of_the_wall_clock_moves_no_event(step_s: int) -> None:
    node = Simulated(wall=((0, 2 * S), (150 * S + 333 * MS, 2 * S + step_s * S)))
    run(node, 300)
    offs = [node.off(event) for event in node.events]
    assert all(lo <= 0 <= hi for lo, _, hi in offs)
    wide = [event for event in node.events[100:] if event.hi_unix_nano - event.lo_unix_nano > 3 * MS]
    # Only of the second in which the clock was stepped it is not known on which side a line was written.
    assert all(150 * S <= node.written[event.seq] - T0 <= 151 * S for event in wide)
    ordered = sorted(node.events, key=lambda event: node.written[event.seq])
    assert all(order(a, b) != "after" for a, b in pairwise(ordered))
    across = [node.events[200], node.events[400]]
    assert order(*across) == "before"


def test_events_between_two_steps_compare_exactly_by_the_wall_clock() -> None:
    node = Simulated(wall=((0, 0), (50 * S, 9 * S)))
    run(node, 100)
    after = [event for event in node.events if node.written[event.seq] > T0 + 60 * S]
    before = [event for event in node.events if node.written[event.seq] < T0 + 45 * S]
    assert len({event.clock_id for event in after}) == len({event.clock_id for event in before}) == 1
    assert after[0].clock_id != before[0].clock_id
    assert before[0].clock_id == "n1/wall"


def test_stamps_of_the_kernel_log_are_placed_by_when_they_were_read() -> None:
    node = Simulated(wall=((0, 0), (200 * S, 4 * S)))
    run(node, 300, kernel=True)
    kernel = [event for event in node.events if event.name == "gpu.xid"]
    assert len(kernel) == 300
    assert all(lo <= 0 <= hi for lo, _, hi in map(node.off, kernel))
    widths = sorted(hi - lo for lo, _, hi in map(node.off, kernel[50:]))
    assert widths[len(widths) // 2] < 1_100 * MS


def test_a_reboot_begins_anew_and_lines_of_the_old_boot_keep_their_times() -> None:
    node = Simulated(wall=((0, 0),))
    run(node, 60)
    node.write(T0 + 60 * S + 100 * MS)
    node.boot, node.up_ns = "b2", 30 * S
    run(node, 60, first=90)
    offs = [node.off(event) for event in node.events]
    assert all(lo <= 0 <= hi for lo, _, hi in offs)
    assert {segment.boot_id for segment in node.segments} == {"b1", "b2"}


def test_what_was_measured_before_a_suspend_is_not_believed_after_it() -> None:
    node = Simulated(wall=((0, 0),))
    run(node, 60)
    node.slept_ns = 3_600 * S
    run(node, 60, first=3_700)
    offs = [node.off(event) for event in node.events]
    assert all(lo <= 0 <= hi for lo, _, hi in offs)
    assert max(event.clock_epoch for event in node.events) == 1


def test_a_node_without_beacons_says_so_and_a_claim_goes_on() -> None:
    node = Simulated(wall=((0, 0),), beacons=False)
    run(node, 130)
    assert [segment.quality for segment in node.segments] == ["none"] * 3
    assert all("beacon" in segment.reason for segment in node.segments)
    assert all(event.hi_unix_nano - event.lo_unix_nano >= 10 * S for event in node.events)


def test_a_node_whose_beacons_cease_is_in_holdover_and_after_hours_not_known() -> None:
    node = Simulated(wall=((0, 0),))
    run(node, 120)
    node.beacons = False
    for second in range(121, 20_000, 20):
        node.second(T0 + second * S)
    qualities = [segment.quality for segment in node.segments]
    assert qualities[-1] == "none"
    assert "for so long" in node.segments[-1].reason
    assert "holdover" in qualities
    node.write(T0 + 20_000 * S)
    node.second(T0 + 20_001 * S)
    lo, _, hi = node.off(node.events[-1])
    assert lo <= 0 <= hi


def test_segments_hold_the_truth_and_tell_of_the_step() -> None:
    node = Simulated(raw_ppm=-31.0, wall=((0, 250 * MS), (120 * S, -5 * S)))
    run(node, 300)
    assert len(node.segments) > 14
    for segment in node.segments:
        for true_ns in range(T0 + S, T0 + 300 * S, S):
            raw_ns = node.raw(true_ns)
            if segment.t_from_raw_ns <= raw_ns < segment.t_to_raw_ns:
                at_ns = raw_ns + segment.a_ns + segment.b_ppb * (raw_ns - segment.t_from_raw_ns) // S
                assert at_ns + segment.lo_ns <= true_ns <= at_ns + segment.hi_ns
    steps = [segment.wall_step_ns for segment in node.segments if segment.wall_step_ns]
    assert steps == [pytest.approx(-5_250 * MS, abs=MS)]
    assert node.segments[-1].wall_offset_ns == pytest.approx(5 * S, abs=MS)


def test_a_worker_that_starts_again_gives_the_same_bounds() -> None:
    whole, broken = Simulated(wall=((0, 0), (70 * S, 9 * S))), Simulated(wall=((0, 0), (70 * S, 9 * S)))
    run(whole, 140, kernel=True)
    for second in range(1, 141):
        run(broken, 1, kernel=True, first=second)
        if second % 7 == 0:
            broken.fold = NodeFold.restore(SIGNALS, broken.fold.snapshot())
    assert broken.events == whole.events
    assert broken.segments == whole.segments


def test_the_state_of_a_node_stays_small() -> None:
    node = Simulated(wall=tuple((n * 20 * S, n % 3 * S) for n in range(60)))
    run(node, 1_200)
    assert len(node.fold.snapshot()) < 100_000


@pytest.mark.parametrize("ahead_s", [-20 * 365 * 86_400, 60 * 365 * 86_400])
def test_a_measured_clock_need_not_be_right(ahead_s: int) -> None:
    node = Simulated(wall=((0, ahead_s * S),))
    run(node, 60)
    assert not node.fold.state.clock_fault
    # The first second's lines are from before the first reading.
    assert all(lo <= 0 <= hi and hi - lo < S for lo, _, hi in map(node.off, node.events[2:]))


def test_lines_of_a_clock_that_was_never_set_go_by_their_arrival_even_where_it_is_measured() -> None:
    node = Simulated(wall=((0, -T0),))
    run(node, 20)
    assert "behind" in node.fold.state.clock_fault
    assert all(lo <= 0 <= hi for lo, _, hi in map(node.off, node.events))


@pytest.mark.parametrize("late_s", [650, 880, 895])
def test_lines_from_before_a_suspend_that_come_much_later_keep_their_times(late_s: int) -> None:
    node = Simulated(wall=((0, 0),))
    run(node, 900)
    node.slept_ns = 3_600 * S
    run(node, 900, first=4_600)
    node.write(T0 + late_s * S)
    run(node, 1, first=5_501)
    late = node.events[-3]
    assert node.written[late.seq] == T0 + late_s * S
    lo, _, hi = node.off(late)
    assert lo <= 0 <= hi


def test_a_sign_of_life_ahead_of_kept_batches_does_not_blur_what_they_say_of_the_clocks() -> None:
    node = Simulated(wall=((0, 0), (150 * S + 333 * MS, 5 * S)))
    run(node, 120)
    node.beacons = False
    kept: list[RawBatch | Progress] = []
    node.kept = kept
    run(node, 60, first=121)
    node.kept = None
    for record in kept:
        now_ns = T0 + 181 * S
        if isinstance(record, Progress):
            record = msgspec.structs.replace(record, clock=node.reading(now_ns), spool_backlog_bytes=1_000)
        node.take(record, now_ns)
    late = node.events[-120:]
    assert all(lo <= 0 <= hi for lo, _, hi in map(node.off, late))
    wide = [event for event in late if event.hi_unix_nano - event.lo_unix_nano > 20 * MS]
    assert all(150 * S <= node.written[event.seq] - T0 <= 151 * S for event in wide)


@pytest.mark.parametrize("step_s", [-20_000, 20_000])
def test_a_step_after_the_beacons_have_ceased_is_undone_as_well(step_s: int) -> None:
    node = Simulated(wall=((0, 0), (15_000 * S, step_s * S)))
    run(node, 120)
    node.beacons = False
    for second in range(121, 15_200):
        node.second(T0 + second * S)
    node.write(T0 + 15_200 * S)
    run(node, 1, first=15_201)
    late = node.events[-3]
    assert node.written[late.seq] == T0 + 15_200 * S
    lo, _, hi = node.off(late)
    assert lo <= 0 <= hi
    assert order(node.events[0], late) == "before"


@pytest.mark.parametrize("counts_sleep", [True, False])
def test_stamps_of_the_kernel_log_hold_their_moment_after_a_suspend(*, counts_sleep: bool) -> None:
    node = Simulated(wall=((0, 0),))
    run(node, 60, kernel=True)
    node.slept_ns = 3_600 * S
    if not counts_sleep:
        node.kernel = lambda true_ns: Simulated.kernel(node, true_ns) - 3_600 * S  # type: ignore[method-assign]
    run(node, 60, first=3_700, kernel=True)
    kernel = [event for event in node.events if event.name == "gpu.xid"]
    assert len(kernel) == 120
    assert all(lo <= 0 <= hi for lo, _, hi in map(node.off, kernel))
