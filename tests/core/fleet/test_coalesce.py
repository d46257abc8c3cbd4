"""Episodes of a fleet: what is one fault, by the silence of its kind and by what ended it."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.episodes import Coalescing
from pipeline.core.fleet.coalesce import (
    CURVE_S,
    PERSISTS_S,
    Episode,
    Window,
    closings,
    episodes,
    longest_s,
    sensitivity,
    window_of,
)
from pipeline.core.fleet.records import FleetSpan, SpanKind
from pipeline.rules import load_rules
from tests.strategies import SECOND, T0

# Gaps of the only public log of several Xid 119 lines of one hang (leptonai/gpud, Apache-2.0).
HANG = [T0 + at_s * SECOND for at_s in (0, 6, 12, 174, 355)]
NONE: dict[str, Coalescing] = {}
times = st.lists(st.integers(0, 2_000 * SECOND), max_size=60)
ends = st.lists(st.integers(0, 2_000 * SECOND), max_size=6).map(sorted)


def _span(kind: SpanKind, from_s: int, to_s: int | None, unit: str = "GPU-1") -> FleetSpan:
    return FleetSpan(
        cluster="test", unit_kind="gpu", unit=unit, kind=kind, from_ns=T0 + from_s * SECOND,
        to_ns=None if to_s is None else T0 + to_s * SECOND,
    )  # fmt: skip


def test_a_hang_that_repeats_itself_is_one_fault_and_five_by_a_flat_rule() -> None:
    assert len(episodes(HANG, window_of("gpu.xid", 119, NONE))) == 1
    assert sensitivity({"GPU-1": HANG}, [5, 6, 60, 120, 300]) == {5: 5, 6: 3, 60: 3, 120: 3, 300: 1}


@pytest.mark.parametrize("xid", [48, 63, 64, 94, 95])
def test_memory_errors_are_one_fault_until_the_reset(xid: int) -> None:
    window = window_of("gpu.xid", xid, NONE)
    lines = [T0, T0 + 7_200 * SECOND, T0 + 20_000 * SECOND]
    assert episodes(lines, window) == [Episode(T0, 3)]
    back = closings([_span("reset", 7_300, 7_310)], window)["GPU-1"]
    assert episodes(lines, window, back) == [Episode(T0, 2), Episode(lines[2], 1)]


def test_without_a_told_reset_a_fault_ends_after_a_day_of_silence() -> None:
    lines = [T0, T0 + PERSISTS_S * SECOND, T0 + (2 * PERSISTS_S + 1) * SECOND]
    assert [one.lines for one in episodes(lines, window_of("gpu.xid", 95, NONE))] == [2, 1]


def test_a_gpu_off_the_bus_is_not_back_by_a_reset_but_by_a_boot() -> None:
    spans = [_span("reset", 10, 20), _span("boot", 30, 40)]
    for name, xid in (("gpu.xid", 79), ("gpu.fell_off_bus", None)):
        assert closings(spans, window_of(name, xid, NONE)) == {"GPU-1": [T0 + 40 * SECOND]}
    assert len(closings(spans, window_of("gpu.xid", 95, NONE))["GPU-1"]) == 2


def test_what_is_not_over_and_what_says_nothing_of_service_closes_nothing() -> None:
    spans = [_span("drain", 5, None), _span("busy", 0, 5), _span("observed", 0, 5), _span("installed", 0, 5)]
    assert closings(spans, window_of("gpu.xid", 48, NONE)) == {}


def test_lines_while_a_unit_is_being_reset_belong_to_the_fault() -> None:
    window = window_of("gpu.xid", 95, NONE)
    lines = [T0, T0 + 15 * SECOND, T0 + 20 * SECOND]
    found = episodes(lines, window, closings([_span("reset", 10, 20)], window)["GPU-1"])
    assert [one.lines for one in found] == [2, 1]


def test_other_numbers_and_names_have_the_windows_of_the_diagnosis() -> None:
    known = load_rules().coalescing
    assert window_of("gpu.xid", 109, known).silence_s == known["gpu.xid"].window_s
    assert window_of("pcie.aer", None, known).silence_s == known["pcie.aer"].window_s
    assert window_of("never.heard.of", None, known).silence_s == 60
    assert longest_s(known) == 86_400


@given(times, ends, st.integers(0, 900))
def test_every_line_is_in_one_episode_and_any_order_gives_the_same(
    lines: list[int], closes: list[int], silence_s: int
) -> None:
    found = episodes(lines, Window(silence_s=silence_s), closes)
    assert sum(one.lines for one in found) == len(lines)
    assert found == episodes(lines[::-1], Window(silence_s=silence_s), closes)
    assert [one.begin_ns for one in found] == sorted({one.begin_ns for one in found})


@given(times, ends)
def test_the_curve_counts_what_episodes_do_and_falls(lines: list[int], closes: list[int]) -> None:
    halves = {"a": lines[::2], "b": lines[1::2]}
    curve = sensitivity(halves, CURVE_S, {"a": closes})
    assert curve == {
        silence_s: len(episodes(halves["a"], Window(silence_s=silence_s), closes))
        + len(episodes(halves["b"], Window(silence_s=silence_s)))
        for silence_s in CURVE_S
    }
    assert list(curve.values()) == sorted(curve.values(), reverse=True)


@given(times, ends, st.integers(0, 900), st.integers(0, 2_000 * SECOND))
def test_a_day_is_counted_by_itself_given_the_lines_of_one_window_before_it(
    lines: list[int], closes: list[int], silence_s: int, begin: int
) -> None:
    window = Window(silence_s=silence_s)
    whole = [one.begin_ns for one in episodes(lines, window, closes) if one.begin_ns >= begin]
    near = [at_ns for at_ns in lines if at_ns >= begin - silence_s * SECOND]
    assert [one.begin_ns for one in episodes(near, window, closes) if one.begin_ns >= begin] == whole


def test_a_million_lines_are_counted_in_seconds() -> None:
    rng = np.random.default_rng(1)
    units = 20_000
    lines = {
        str(unit): one.tolist()
        for unit, one in enumerate(np.split(rng.integers(0, 28 * 86_400 * SECOND, 1_000_000), units))
    }
    began_s = time.process_time()
    found = sum(len(episodes(one, Window(silence_s=600), [T0])) for one in lines.values())
    counted_s = time.process_time() - began_s
    curve = sensitivity(lines)
    assert curve[600] == found
    assert counted_s < 10, "a quadratic way takes minutes"
