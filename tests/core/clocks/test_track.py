"""The clock of one node against one broker."""

import itertools
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from pipeline.core.clocks import closure
from pipeline.core.clocks.track import SEGMENT_NS, Segment, Track
from schemas.records import ClockSample
from tests.clock_channels import BASE, MS, SECOND, Channel, Clock, beacons, busy, data, quiet


def node(
    seed: int, seconds: int, channel: Channel = quiet, steps: Iterable[tuple[int, int]] = ()
) -> tuple[Clock, list[ClockSample]]:
    """A clock, and the beacons of its node."""
    rng = np.random.default_rng(seed)
    clock = Clock(rng, seconds)
    clock.steps = list(steps)
    return clock, list(beacons(rng, clock, channel, seconds).samples())


def fed(samples: Iterable[ClockSample]) -> Track:
    track = Track()
    for sample in samples:
        track.update(sample)
    return track


def holds(track: Track, clock: Clock, raw: int) -> bool:
    found = track.at(raw)
    assert found is not None
    return found.lo_ns <= clock.offset(raw) <= found.hi_ns


@pytest.mark.parametrize("channel", [quiet, busy, data])
def test_the_truth_is_within_the_bounds_from_the_first_sample_on(channel: Channel) -> None:
    for seed in range(6):
        clock, samples = node(seed, 400, channel)
        track = Track()
        for sample in samples:
            track.update(sample)
            track.close(sample.t1_ns)
            for raw in (sample.t0_ns - 30 * SECOND, sample.t0_ns, sample.t1_ns, sample.t1_ns + 40 * SECOND):
                assert holds(track, clock, raw)
        assert track.epoch == 0


def test_the_bounds_are_narrower_than_what_one_sample_gives() -> None:
    clock, samples = node(1, 200)
    found = fed(samples).at(samples[-1].t1_ns)
    assert found is not None
    assert found.quality == "good"
    assert found.hi_ns - found.lo_ns < MS
    assert abs(found.offset_ns - clock.offset(samples[-1].t1_ns)) <= found.u99_ns < 0.3 * MS


def test_without_the_quantum_of_the_stamp_the_bounds_are_wrong() -> None:
    """A stamp of 5 ms says 5.000 to 5.999 ms. Who takes it for 5.000 loses the truth, or sees steps that are none."""
    clock, samples = node(1, 300)
    right, wrong, misses = Track(), Track(quantum_ns=0), 0
    for sample in samples:
        right.update(sample)
        wrong.update(sample)
        assert holds(right, clock, sample.t1_ns)
        misses += not holds(wrong, clock, sample.t1_ns)
    assert right.epoch == 0
    assert misses > 20


def test_of_many_records_with_one_stamp_the_last_sent_is_what_counts() -> None:
    """A batch of 100: the broker stamps it once, and each record waited for it for another time."""
    _, samples = node(1, 100)
    batch = [
        msgspec.structs.replace(samples[-1], t0_ns=samples[-1].t0_ns - (99 - k) * 40_000, t1_ns=samples[-1].t1_ns)
        for k in range(100)
    ]
    one, all_ = fed([*samples[:-1], batch[-1]]), fed([*samples[:-1], *batch])
    assert (all_.top, all_.bottom) == (one.top, one.bottom)
    assert all_.epoch == 0


def test_a_broker_that_pauses_loosens_the_bound_and_breaks_nothing() -> None:
    clock, samples = node(1, 100)
    slow = samples[50]
    appended = slow.t0_ns + 4_800 * MS
    stamp_ms = (appended + clock.offset(appended)) // MS
    samples[50:56] = [msgspec.structs.replace(slow, t1_ns=slow.t0_ns + 5 * SECOND, broker_time_ms=stamp_ms)]
    track = Track()
    for sample in samples:
        track.update(sample)
        assert holds(track, clock, sample.t1_ns)
    assert track.epoch == 0


@pytest.mark.parametrize("by_ms", [-1000, -40, -5, 5, 40, 1000])
def test_a_step_begins_an_epoch_at_the_first_beacon(by_ms: int) -> None:
    at = BASE + 120 * SECOND + 500 * MS
    for seed in range(4):
        clock, samples = node(seed, 300, steps=[(at, by_ms * MS)])
        track = Track()
        for sample in samples:
            track.update(sample)
            assert track.epoch == (sample.t0_ns > at)
            assert holds(track, clock, sample.t1_ns)


@pytest.mark.parametrize("by_ms", [-300, 300])
def test_what_lies_between_two_epochs_is_bounded_by_both(by_ms: int) -> None:
    at = BASE + 120 * SECOND + 500 * MS
    clock, samples = node(3, 200, steps=[(at, by_ms * MS)])
    track = Track()
    segments: list[Segment] = []
    for sample in samples:
        track.update(sample)
        segments += track.close(sample.t1_ns)
    stepped = [one for one in segments if one.quality == "stepped"]
    assert len(stepped) == 1
    assert stepped[0].t_from_ns < at < stepped[0].t_to_ns < stepped[0].t_from_ns + 2 * SECOND
    for raw in (at - 1, at):
        found = track.at(raw)
        assert found is not None
        assert found.quality == "stepped"
        assert found.lo_ns <= clock.offset(raw) <= found.hi_ns
    assert {one.epoch for one in segments} == {0, 1}


def test_a_drift_survives_a_step() -> None:
    clock, samples = node(3, 200, steps=[(BASE + 190 * SECOND, SECOND)])
    track = fed([s for s in samples if s.t1_ns < BASE + 192 * SECOND])
    assert track.epoch == 1
    assert track.drift == pytest.approx(clock.drift, abs=2e-6)


def test_clocks_that_are_slewed_are_not_for_this_and_raw_clocks_never_are() -> None:
    """500 ppm for 100 s, as chrony may slew a wall clock: beyond what is allowed to a crystal, so epochs follow."""
    _, samples = node(1, 400)
    assert fed(samples).epoch == 0
    slewed = []
    for sample in samples:
        seconds = [min(max((raw - BASE) / SECOND - 150, 0.0), 100.0) for raw in (sample.t0_ns, sample.t1_ns)]
        t0_ns, t1_ns = (
            int(raw - 5e-4 * s * SECOND) for raw, s in zip((sample.t0_ns, sample.t1_ns), seconds, strict=True)
        )
        slewed.append(msgspec.structs.replace(sample, t0_ns=t0_ns, t1_ns=t1_ns))
    assert fed(slewed).epoch > 5


@pytest.mark.parametrize(
    "change",
    [
        {"broker_time_ms": 1}, {"broker_time_ms": 0}, {"broker_time_ms": -1}, {"broker_time_ms": 10**17},
        {"t1_ns": BASE}, {"t0_ns": -5}, {"t0_ns": BASE - 1000 * SECOND},
    ],
)  # fmt: skip
def test_a_sample_that_cannot_be_changes_nothing(change: dict[str, int]) -> None:
    _, samples = node(1, 50)
    track = fed(samples[:-1])
    before = msgspec.json.encode(track)
    track.update(msgspec.structs.replace(samples[-1], **change))
    assert msgspec.json.encode(track) == before


def test_a_stamp_from_the_future_costs_an_epoch_and_what_follows_is_right_again() -> None:
    clock, samples = node(1, 100)
    samples[50] = msgspec.structs.replace(samples[50], broker_time_ms=samples[50].broker_time_ms + 3_600_000)
    track = fed(samples)
    assert track.epoch == 2
    assert holds(track, clock, samples[-1].t1_ns)


def test_samples_that_are_read_again_change_nothing() -> None:
    _, samples = node(1, 60)
    track = fed(samples)
    before = msgspec.json.encode(track)
    for sample in samples[-20:]:
        track.update(sample)
    assert msgspec.json.encode(track) == before


@pytest.mark.parametrize("channel", [quiet, busy, data])
def test_a_state_read_back_from_json_answers_alike(channel: Channel) -> None:
    _, samples = node(2, 700, channel, steps=[(BASE + 300 * SECOND, 50 * MS)])
    kept = Track()
    for number, sample in enumerate(samples):
        if number % 97 == 0:
            again = msgspec.json.decode(msgspec.json.encode(kept), type=Track)
        for track in (kept, again):
            track.update(sample)
        raws = range(sample.t1_ns - 600 * SECOND, sample.t1_ns + 100 * SECOND, 37 * SECOND)
        assert [again.at(raw) for raw in raws] == [kept.at(raw) for raw in raws]
        assert again.close(sample.t1_ns) == kept.close(sample.t1_ns)
    assert again == kept


@pytest.mark.parametrize("hz", [0.5, 1, 5])
def test_a_state_is_at_most_8_kilobytes(hz: float) -> None:
    rng = np.random.default_rng(1)
    clock = Clock(rng, 900)
    track, most = Track(), 0
    for sample in beacons(rng, clock, data, 900, hz=hz).samples():
        track.update(sample)
        track.close(sample.t1_ns)
        most = max(most, len(msgspec.json.encode(track)))
    assert 4000 < most <= 8192


def test_a_state_of_ways_without_noise_is_at_most_8_kilobytes() -> None:
    """Then every bound is as good as its neighbours, and the polygon has the most corners."""
    rng = np.random.default_rng(1)
    clock = Clock(rng, 900)

    def even(_: np.random.Generator, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(at), 0.2 * MS), np.full(len(at), 0.2 * MS)

    track = Track()
    for sample in beacons(rng, clock, even, 900).samples():
        track.update(sample)
        track.close(sample.t1_ns)
        assert holds(track, clock, sample.t1_ns)
        assert len(msgspec.json.encode(track)) <= 8192


def test_after_the_last_sample_bounds_grow_and_hold_until_nothing_is_said() -> None:
    clock, samples = node(5, 600)
    track, last = fed(samples[:300]), samples[299].t1_ns
    widths = []
    for s in (1, 10, 60, 300):
        found = track.at(last + s * SECOND)
        assert found is not None
        assert found.quality == ("good" if s <= 10 else "holdover")
        assert found.lo_ns <= clock.offset(last + s * SECOND) <= found.hi_ns
        widths.append(found.hi_ns - found.lo_ns)
    assert widths == sorted(widths)
    assert widths[1] < MS
    assert widths[3] < 10 * MS
    assert track.at(last + 6 * 3600 * SECOND) is None


def test_an_empty_track_says_nothing() -> None:
    assert Track().at(BASE) is None
    assert Track().close(BASE) == []


def test_closed_spans_follow_each_other_and_hold_the_truth() -> None:
    clock, samples = node(7, 900)
    track = Track()
    segments: list[Segment] = []
    for sample in samples:
        track.update(sample)
        segments += track.close(sample.t1_ns)
    assert len(segments) >= 54
    for one, other in itertools.pairwise(segments):
        assert one.t_to_ns == other.t_from_ns
        assert one.t_to_ns % SEGMENT_NS == 0
    for one in segments:
        assert one.lo_ns <= 0 <= one.hi_ns
        for raw in np.linspace(one.t_from_ns, one.t_to_ns - 1, 9).astype(np.int64).tolist():
            line = one.a_ns + one.b_ppb * (raw - one.t_from_ns) / 1e9
            assert one.lo_ns - 1 <= clock.offset(raw) - line <= one.hi_ns + 1
        assert one.b_lo_ppb <= clock.drift * 1e9 + 1000
        assert one.b_hi_ppb >= clock.drift * 1e9 - 1000


def test_an_event_in_a_closed_span_is_answered_by_it_for_good() -> None:
    _, samples = node(7, 400)
    track = Track()
    raw = BASE + 150 * SECOND
    answers = []
    for sample in samples:
        track.update(sample)
        track.close(sample.t1_ns)
        if sample.t1_ns > raw + SEGMENT_NS + SECOND:
            answers.append(track.at(raw))
    assert len(set(map(str, answers))) == 1


def test_a_span_is_closed_only_once_a_sample_behind_it_shows_that_no_clock_stepped() -> None:
    _, samples = node(7, 100)
    end = (BASE + 60 * SECOND) // SEGMENT_NS * SEGMENT_NS
    track = fed([s for s in samples if s.t1_ns < end])
    assert all(one.t_to_ns < end for one in track.close(end + SECOND))
    assert track.close(end + 12 * SECOND)[-1].t_to_ns == end


def test_before_the_oldest_closed_span_bounds_widen_and_hold() -> None:
    clock, samples = node(7, 900)
    track = Track()
    for sample in samples:
        track.update(sample)
        track.close(sample.t1_ns)
    oldest = track.segments[0].t_from_ns
    for s in (1, 30, 200):
        found = track.at(oldest - s * SECOND)
        assert found is not None
        assert found.quality == ("good" if s <= 10 else "holdover")
        assert found.lo_ns <= clock.offset(oldest - s * SECOND) <= found.hi_ns


def test_spans_without_beacons_are_holdover() -> None:
    _, samples = node(7, 400)
    lost = [s for s in samples if not 200 <= (s.t0_ns - BASE) / SECOND < 300]
    track = Track()
    segments: list[Segment] = []
    for sample in samples:
        if sample in lost:
            track.update(sample)
        segments += track.close(sample.t1_ns)
    qualities = [one.quality for one in segments if 220 <= (one.t_from_ns - BASE) / SECOND < 280]
    assert set(qualities) == {"holdover"}
    assert segments[-1].quality == "good"


def test_a_broker_that_steps_is_told_from_nodes_that_do_and_orders_stay() -> None:
    at = BASE + 120 * SECOND + 500 * MS
    openings: list[closure.Opening] = []
    ends = []
    for seed in range(6):
        clock, samples = node(seed, 240, steps=[(at, 250 * MS)] if seed else [(at - 60 * SECOND, 250 * MS)])
        track = Track()
        for sample in samples:
            epoch = track.epoch
            track.update(sample)
            if track.epoch > epoch:
                openings.append(closure.Opening(broker=1, node=str(seed), at_ns=sample.broker_time_ms * MS))
        found = track.at(samples[-1].t1_ns)
        assert found is not None
        ends.append(
            closure.Bounds(found.lo_ns - clock.offset(samples[-1].t1_ns), found.hi_ns - clock.offset(samples[-1].t1_ns))
        )
    assert list(closure.stepped_brokers(openings, {1: 6})) == [1]
    assert closure.stepped_brokers(openings[:1], {1: 6}) == {}
    apart = closure.between({1: ends[1]}, {1: ends[2]})
    assert apart is not None
    assert apart.lo_ns <= 0 <= apart.hi_ns


def test_a_week_on_one_state_loses_no_precision() -> None:
    """Origins move on, so that floats stay small."""
    clock, samples = node(9, 3000)
    track = Track()
    for sample in samples[::2]:
        track.update(sample)
    assert holds(track, clock, samples[-1].t1_ns)
    assert samples[-1].t1_ns - track.origin_raw_ns < 600 * SECOND
    week = 7 * 86_400 * SECOND
    shifted = [
        msgspec.structs.replace(
            s, t0_ns=s.t0_ns + week, t1_ns=s.t1_ns + week, broker_time_ms=s.broker_time_ms + week // MS
        )
        for s in samples[:200]
    ]
    later = fed([*samples[:200], *shifted])
    found, alone = later.at(shifted[-1].t1_ns), fed(shifted).at(shifted[-1].t1_ns)
    assert found is not None
    assert alone is not None
    assert (found.lo_ns, found.hi_ns) == pytest.approx((alone.lo_ns, alone.hi_ns), abs=3)


def test_a_coarser_quantum_is_a_setting() -> None:
    rng = np.random.default_rng(3)
    clock = Clock(rng, 300)
    track = Track(quantum_ns=10 * MS)
    for sample in beacons(rng, clock, quiet, 300, quantum_ms=10).samples():
        track.update(sample)
        assert holds(track, clock, sample.t1_ns)
    assert track.epoch == 0


def test_a_polygon_made_narrow_by_luck_does_not_make_the_best_value_as_much_better() -> None:
    _, samples = node(1, 300, data)
    track = Track()
    halves, errors = [], []
    for sample in samples:
        track.update(sample)
        found = track.at(sample.t1_ns)
        assert found is not None
        halves.append((found.hi_ns - found.lo_ns) / 2)
        errors.append(found.u99_ns)
        assert found.u99_ns <= max(found.hi_ns - found.offset_ns, found.offset_ns - found.lo_ns)
    narrow = int(np.argmin(halves[100:])) + 100
    usual = float(np.median(halves[100:]))
    assert halves[narrow] < 0.8 * usual
    assert errors[narrow] / halves[narrow] > 1.2 * track.spread.share
