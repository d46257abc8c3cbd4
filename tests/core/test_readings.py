"""Measures kept by time: the same whatever the order, few buckets however long, and hardly moved by one pause."""

from collections.abc import Sequence
from math import exp, isclose

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.readings import BUCKET_S, MAX_BUCKETS, UNTIMED, Readings, of_event
from tests.strategies import SECOND, T0, event

POINTS = st.lists(
    st.tuples(
        st.sampled_from(["step_ms", "sm_clock_mhz"]),
        st.floats(0, 1e6, allow_nan=False),
        st.one_of(st.none(), st.integers(0, 400_000).map(lambda s: T0 + s * SECOND)),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def _built(points: Sequence[tuple[str, float, int | None]]) -> Readings:
    readings = Readings()
    for point in points:
        readings.add(*point)
    return readings


@given(points=POINTS, data=st.data())
@settings(deadline=None)
def test_readings_are_the_same_in_any_order_and_in_any_parts(
    points: list[tuple[str, float, int | None]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(points))
    cut = data.draw(st.integers(0, len(points)))
    parts = _built(shuffled[:cut])
    parts.take(_built(shuffled[cut:]))
    assert parts == _built(points)


@given(points=POINTS)
@settings(deadline=None)
def test_however_long_a_job_runs_there_are_few_buckets(points: list[tuple[str, float, int | None]]) -> None:
    readings = _built(points)
    numbers = {number for buckets in readings.sums.values() for number in buckets} - {UNTIMED}
    assert len(numbers) <= MAX_BUCKETS
    assert sum(one.count for buckets in readings.sums.values() for one in buckets.values()) == len(points)


def test_a_snapshot_brings_them_back() -> None:
    readings = _built([("step_ms", 812.4, T0), ("step_ms", 7.0, None), ("score", 0.6, T0 + 9_000 * SECOND)])
    assert msgspec.json.decode(msgspec.json.encode(readings), type=Readings) == readings


def test_buckets_are_no_wider_than_they_must_be() -> None:
    few = _built([("step_ms", 1, T0 + n * BUCKET_S * SECOND) for n in range(MAX_BUCKETS - 1)])
    assert few.width_s() == BUCKET_S
    many = _built([("step_ms", 1, T0 + n * BUCKET_S * SECOND) for n in range(MAX_BUCKETS * 4 - 8)])
    assert many.width_s() == 4 * BUCKET_S


def test_one_pause_of_a_minute_hardly_moves_the_mean_of_an_hour() -> None:
    steps = [("step_ms", 60_000.0 if n == 700 else 2_000.0, T0) for n in range(1_800)]
    (buckets,) = _built(steps).sums.values()
    (one,) = buckets.values()
    assert isclose(exp(one.mean), 2_000, rel_tol=0.01)


def test_seconds_and_milliseconds_are_one_measure() -> None:
    a = of_event(event("train.step", attributes={"step_seconds": "0.812"}))
    b = of_event(event("train.step", attributes={"step_ms": "812"}))
    assert a == b is not None


def test_what_is_no_number_and_what_other_lines_call_the_same_is_no_reading() -> None:
    assert of_event(event("gpu.telemetry", attributes={"sm_clock_mhz": "fast"})) is None
    assert of_event(event("gpu.telemetry", attributes={"sm_clock_mhz": "nan"})) is None
    assert of_event(event("gpu.telemetry", attributes={"sm_clock_mhz": "-3"})) is None
    assert of_event(event("ib.port.state", attributes={"width": "4"})) is None
