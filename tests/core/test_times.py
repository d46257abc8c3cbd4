"""From claimed times to bounds on the reference timeline."""

import msgspec
import pytest

from pipeline.core import times
from pipeline.core.dating import NOTHING_SAID, BootReading, Dating
from pipeline.core.measured import read_through
from pipeline.core.parse import parse_line
from pipeline.core.stamps import Stamp
from pipeline.core.times import DAY_NS, DEFAULT_BOUND_NS, When
from schemas.records import (
    TIME_MAX_NS,
    TIME_MIN_NS,
    ClockClaim,
    ClockReading,
    ClockStamp,
    RawBatch,
    RawLine,
    SourceProgress,
)
from tests.strategies import SECOND, T0, raw_batch, raw_progress

IN_2026 = Dating(year=2026, zone_is_stated=True)
CLAIM = ClockClaim(offset_ns=-37 * SECOND, bound_ns=SECOND // 20, by="test")


def _batch(claim: ClockClaim | None = None, clock: ClockReading | None = None) -> RawBatch:
    return raw_batch(
        "alpha", 1, claim=claim, clock=clock or ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)
    )


def _stamp(text: str) -> Stamp:
    stamp = parse_line(text).stamp
    assert stamp is not None
    return stamp


def _line(*, observed_time_unix_nano: int = 0, time_unix_nano: int | None = None) -> RawLine:
    return RawLine(
        seq=1, source="s", generation="0", offset=0, body="x", observed_time_unix_nano=observed_time_unix_nano,
        time_unix_nano=time_unix_nano,
    )  # fmt: skip


def test_a_claim_moves_the_time_and_gives_its_bound() -> None:
    when = times.wall_time(T0, 1_000, "alpha", _batch(CLAIM))
    assert when.aligned_ns == T0 - 37 * SECOND
    assert (when.lo_ns, when.hi_ns) == (T0 - 37 * SECOND - SECOND // 20, T0 - 37 * SECOND + 1_000 + SECOND // 20)
    assert when.quality == "good"
    assert (when.clock_id, when.raw_ns) == ("alpha/wall", T0)


def test_without_a_claim_the_bounds_are_five_seconds_plus_the_resolution() -> None:
    when = times.wall_time(T0, SECOND, "alpha", _batch())
    assert (when.lo_ns, when.hi_ns) == (T0 - DEFAULT_BOUND_NS, T0 + SECOND + DEFAULT_BOUND_NS)
    assert when.quality == "holdover"


@pytest.mark.parametrize("wall_ns", [0, 86_400 * SECOND, 4_070_908_800 * SECOND], ids=["epoch", "1970", "2099"])
def test_a_clock_that_was_never_set_gives_no_time(wall_ns: int) -> None:
    when = times.wall_time(wall_ns, 1_000, "alpha", _batch(CLAIM))
    assert when is times.UNKNOWN
    assert (when.lo_ns, when.hi_ns, when.quality) == (TIME_MIN_NS, TIME_MAX_NS, "none")


@pytest.mark.parametrize(
    ("line", "expected_ns"),
    [
        ("2026-03-04T05:06:07.250000+00:00 alpha kernel: x", T0 + SECOND // 4),
        ("2026-03-04T07:06:07+0200 alpha kernel: x", T0),
        ("Mar  4 05:06:07 alpha kernel: x", T0),
        ("[Wed Mar  4 05:06:07 2026] x", T0),
        ("E0304 05:06:07.000000 12 a/b.py:9] x", T0),
    ],
)
def test_every_format_of_one_moment_gives_the_same_time(line: str, expected_ns: int) -> None:
    when = times.stamped(_stamp(line), IN_2026, None, "alpha", _batch())
    assert when.aligned_ns == expected_ns


def test_the_zone_of_the_source_is_used_where_the_stamp_has_none() -> None:
    line = "2026-03-04 07:06:07 x"
    assert times.stamped(_stamp(line), Dating(zone_s=7200), None, "alpha", _batch()).aligned_ns == T0


def test_a_stamp_without_a_year_takes_the_one_nearest_to_the_hint() -> None:
    new_year_ns = 1_767_225_600 * SECOND  # 2026-01-01
    hint_ns = new_year_ns + 5 * SECOND
    when = times.stamped(_stamp("Dec 31 23:59:59 alpha kernel: x"), NOTHING_SAID, hint_ns, "alpha", _batch())
    assert when.aligned_ns == new_year_ns - SECOND


def test_a_stamp_without_a_year_and_without_any_hint_gives_no_time() -> None:
    assert (
        times.stamped(_stamp("Dec 31 23:59:59 alpha kernel: x"), NOTHING_SAID, None, "alpha", _batch()) is times.UNKNOWN
    )


def test_a_kernel_stamp_becomes_wall_time_through_the_clock_reading() -> None:
    clock = ClockReading(raw_ns=0, mono_ns=1_000 * SECOND, boottime_ns=1_000 * SECOND, wall_ns=T0)
    when = times.kernel_time(900 * SECOND, 1_000, "alpha", _batch(CLAIM, clock))
    assert when.aligned_ns is not None
    assert abs(when.aligned_ns - (T0 - 100 * SECOND - 37 * SECOND)) <= 1_000
    drift_ns = 100 * SECOND * times.KERNEL_CLOCK_PPM // 1_000_000
    assert when.lo_ns <= when.aligned_ns - drift_ns
    assert when.hi_ns >= when.aligned_ns + drift_ns


def test_two_kernel_stamps_through_one_reading_keep_their_order_and_distance() -> None:
    clock = ClockReading(raw_ns=0, mono_ns=10_000 * SECOND, boottime_ns=10_000 * SECOND, wall_ns=T0)
    first = times.kernel_time(900 * SECOND, 1_000, "alpha", _batch(None, clock))
    second = times.kernel_time(900 * SECOND + 90_000, 1_000, "alpha", _batch(None, clock))
    assert first.raw_ns is not None
    assert second.raw_ns is not None
    assert second.raw_ns - first.raw_ns == pytest.approx(90_000, abs=100)


def test_a_kernel_stamp_without_a_clock_reading_keeps_the_kernel_clock() -> None:
    when = times.kernel_time(900 * SECOND, 1_000, "alpha", _batch())
    assert (when.clock_id, when.raw_ns, when.aligned_ns) == ("alpha/boot-alpha/kernel", 900 * SECOND, None)
    assert (when.lo_ns, when.hi_ns, when.quality) == (TIME_MIN_NS, TIME_MAX_NS, "none")


def test_the_transport_time_of_a_journal_line_wins() -> None:
    when = times.transported(_line(time_unix_nano=T0), "alpha", _batch())
    assert when is not None
    assert when.aligned_ns == T0
    assert times.transported(_line(), "alpha", _batch()) is None


def _unstamped(line: RawLine, since: When) -> When:
    return times.unstamped(since, times.observed(line, "alpha", _batch()))


def test_a_live_line_without_a_stamp_was_written_between_the_last_stamp_and_the_reading() -> None:
    since = times.wall_time(T0, 0, "alpha", _batch())
    when = _unstamped(_line(observed_time_unix_nano=T0 + 3 * SECOND), since)
    assert (when.raw_ns, when.resolution_ns) == (T0, 3 * SECOND)
    assert when.lo_ns == T0 - DEFAULT_BOUND_NS
    assert when.hi_ns == T0 + 3 * SECOND + DEFAULT_BOUND_NS
    assert when.quality == "none"


def test_a_live_line_of_a_file_without_any_stamp_was_written_in_the_last_day() -> None:
    when = _unstamped(_line(observed_time_unix_nano=T0), times.UNKNOWN)
    assert when.lo_ns == T0 - DEFAULT_BOUND_NS - DAY_NS
    assert when.hi_ns == T0 + DEFAULT_BOUND_NS


def test_a_replayed_line_without_a_stamp_has_a_lower_bound_only() -> None:
    since = times.wall_time(T0, 0, "alpha", _batch())
    when = _unstamped(_line(), since)
    assert (when.lo_ns, when.hi_ns) == (T0 - DEFAULT_BOUND_NS, TIME_MAX_NS)
    assert _unstamped(_line(), times.UNKNOWN) == times.UNKNOWN


def test_the_last_stamp_of_a_file_is_never_later_than_a_reading_that_went_back() -> None:
    since = times.wall_time(T0 + 60 * SECOND, 0, "alpha", _batch())
    when = _unstamped(_line(observed_time_unix_nano=T0), since)

    assert when.lo_ns <= when.hi_ns
    assert when.resolution_ns >= 0


@pytest.mark.parametrize(
    ("run", "ahead_s", "faulty"),
    [
        ("live", 0, False), ("live", 30, False), ("live", 4_000, True), ("live", -3_600, False),
        ("live", -61 * 86_400, True), ("drill", 4_000, True), ("replay", 4_000, False), ("post_mortem", -10**9, False),
    ],
)  # fmt: skip
def test_a_clock_is_at_fault_far_ahead_or_months_behind_and_only_live(run: str, ahead_s: int, faulty: bool) -> None:
    fault = times.clock_fault(run, T0 + ahead_s * SECOND, T0)  # type: ignore[arg-type]
    assert bool(fault) is faulty
    if fault:
        assert ("ahead" in fault) == (ahead_s > 0)


def test_a_line_of_a_node_with_a_bad_clock_is_bounded_by_its_arrival() -> None:
    assert times.arrived(T0) == When(aligned_ns=T0, lo_ns=T0 - DAY_NS, hi_ns=T0)


def test_a_kernel_stamp_may_be_off_by_a_hundred_parts_per_million_of_its_age() -> None:
    clock = ClockReading(raw_ns=0, mono_ns=1_000 * SECOND, boottime_ns=1_000 * SECOND, wall_ns=T0)
    for age_s, drift_ms in ((100, 10), (900, 90)):
        when = times.kernel_time((1_000 - age_s) * SECOND, 1_000, "alpha", _batch(CLAIM, clock))
        at_ns, drift_ns = T0 - age_s * SECOND, drift_ms * 1_000_000
        assert (when.raw_ns, when.resolution_ns) == (at_ns - drift_ns, 1_000 + 2 * drift_ns)
        assert when.aligned_ns == at_ns + CLAIM.offset_ns
        assert when.lo_ns == at_ns + CLAIM.offset_ns - drift_ns - CLAIM.bound_ns
        assert when.hi_ns == at_ns + CLAIM.offset_ns + drift_ns + CLAIM.bound_ns + 1_000


@pytest.mark.parametrize(
    ("node", "is_own"),
    [("alpha", True), ("alpha.cluster.example", True), ("beta", False), ("alphabet", False), ("", False)],
)
def test_a_claim_speaks_for_the_clock_of_its_reporter_only(node: str, is_own: bool) -> None:
    when = times.wall_time(T0, 1_000, node, _batch(CLAIM))
    bound_ns, quality = (CLAIM.bound_ns, "good") if is_own else (DEFAULT_BOUND_NS, "holdover")
    assert when.quality == quality
    assert when.aligned_ns == T0 + (CLAIM.offset_ns if is_own else 0)
    assert (when.lo_ns, when.hi_ns) == (when.aligned_ns - bound_ns, when.aligned_ns + 1_000 + bound_ns)


def test_a_claim_of_one_address_does_not_speak_for_another_address() -> None:
    record = raw_batch("10.0.7.11", 1, claim=CLAIM)
    assert times.claim_of(record, "10.0.7.11") == CLAIM
    assert times.claim_of(record, "10.0.7.12") == times.NO_CLAIM


def test_how_far_a_node_was_read_is_said_on_the_reference_timeline() -> None:
    progress = raw_progress("alpha", through_ns=T0)
    assert read_through(progress, None) == T0 - DEFAULT_BOUND_NS
    claimed = msgspec.structs.replace(progress, clock_claim=CLAIM)
    assert read_through(claimed, None) == T0 + CLAIM.offset_ns - CLAIM.bound_ns
    assert read_through(raw_progress("alpha", through_ns=T0, kinds={"kernel": "off"}), None) == 0


def test_what_dmesg_computes_is_wider_than_its_last_digit_and_exact_among_its_like() -> None:
    when = times.stamped(_stamp("[Wed Mar  4 05:06:07 2026] x"), NOTHING_SAID, None, "alpha", _batch(), source="dmesg")
    assert (when.clock_id, when.aligned_ns) == ("alpha/wall", T0)
    assert (when.raw_ns, when.resolution_ns) == (T0 - times.COMPUTED_NS, SECOND + 2 * times.COMPUTED_NS)
    assert when.lo_ns == T0 - times.COMPUTED_NS - DEFAULT_BOUND_NS
    assert when.hi_ns == T0 + SECOND + times.COMPUTED_NS + DEFAULT_BOUND_NS
    assert when.kernel == ClockStamp(clock_id="alpha/dmesg/dmesg", raw_ns=T0, resolution_ns=SECOND)


def test_a_claim_does_not_speak_for_the_bmc() -> None:
    when = times.stamped(_stamp("1a | 03/04/2026 | 05:06:07 | x"), NOTHING_SAID, None, "alpha", _batch(CLAIM))
    assert (when.clock_id, when.aligned_ns, when.quality) == ("alpha/bmc", T0, "holdover")
    assert (when.lo_ns, when.hi_ns) == (T0 - times.BMC_BOUND_NS, T0 + SECOND + times.BMC_BOUND_NS)


def test_stamps_through_a_clock_reading_keep_the_exact_one_of_the_kernel_beside() -> None:
    clock = ClockReading(raw_ns=0, mono_ns=10_000 * SECOND, boottime_ns=10_000 * SECOND, wall_ns=T0)
    when = times.kernel_time(900 * SECOND, 1_000, "alpha", _batch(None, clock))
    assert when.kernel == ClockStamp(clock_id="alpha/boot-alpha/kernel", raw_ns=900 * SECOND, resolution_ns=1_000)
    assert when.inferred == ()


def test_a_reading_of_the_clock_counts_more_than_one_that_was_inferred() -> None:
    inferred = Dating(boot=BootReading(boot_ns=1_000 * SECOND, wall_ns=T0 + 77 * SECOND, bound_ns=SECOND))
    clock = ClockReading(raw_ns=0, mono_ns=1_000 * SECOND, boottime_ns=1_000 * SECOND, wall_ns=T0)
    when = times.kernel_time(1_000 * SECOND, 1_000, "alpha", _batch(None, clock), "dmesg", inferred)
    assert (when.aligned_ns, when.inferred) == (T0, ())
    alone = times.kernel_time(1_000 * SECOND, 1_000, "alpha", _batch(), "dmesg", inferred)
    assert (alone.aligned_ns, alone.inferred) == (T0 + 77 * SECOND, ("boot",))
    assert (alone.raw_ns, alone.resolution_ns) == (T0 + 76 * SECOND, 2 * SECOND + 1_000)


def test_a_line_after_an_inferred_time_is_no_better_known() -> None:
    since = times.stamped(_stamp("2026-03-04 05:06:07 x"), NOTHING_SAID, None, "alpha", _batch())
    assert _unstamped(_line(), since).inferred == ("zone",)


def test_what_the_agent_measures_every_few_minutes_holds_no_watermark_back() -> None:
    progress = raw_progress("alpha", through_ns=T0)
    slow = SourceProgress(source="ras", state="on", kind="telemetry", read_through_unix_nano=T0 - 300 * times.SECOND_NS)
    beside = msgspec.structs.replace(progress, sources=[*progress.sources, slow])
    assert read_through(beside, None) == T0 - DEFAULT_BOUND_NS
    alone = msgspec.structs.replace(progress, sources=[slow])
    assert read_through(alone, None) == T0 - 300 * times.SECOND_NS - DEFAULT_BOUND_NS
