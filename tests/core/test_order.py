"""Which of two events came first: exact on one clock, by bounds between clocks, by offset inside a file."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pipeline.core.order import BROKERS_APART_NS, canonical, lag_ns, order, sureness
from schemas.records import TIME_MAX_NS, ClockStamp, Entity, Event, Printer
from tests.strategies import SECOND, T0, any_events, event


def test_readings_of_one_clock_compare_exactly_however_wide_the_bounds_are() -> None:
    a = event("a", at_ns=T0, source="one", bound_ns=60 * SECOND)
    b = event("b", at_ns=T0 + 1, source="two", bound_ns=60 * SECOND)
    assert order(a, b) == "before"
    assert order(b, a) == "after"


def test_readings_of_one_clock_inside_the_resolution_of_the_stamp_are_concurrent() -> None:
    a = event("a", at_ns=T0, source="one", resolution_ns=SECOND)
    b = event("b", at_ns=T0 + SECOND // 2, source="two")
    assert order(a, b) == "concurrent"
    assert order(a, event("b", at_ns=T0 + SECOND + 1, source="two")) == "before"


def test_lines_of_one_file_keep_their_order_where_stamps_are_equal() -> None:
    a = event("a", at_ns=T0, resolution_ns=SECOND, offset=10)
    b = event("b", at_ns=T0, resolution_ns=SECOND, offset=20)
    assert order(a, b) == "before"
    assert order(b, a) == "after"


def test_lines_of_one_file_without_any_time_keep_their_order() -> None:
    assert order(event("a", at_ns=None, offset=10), event("b", at_ns=None, offset=20)) == "before"


def test_the_order_in_a_file_counts_between_lines_of_one_writer_whomever_they_speak_of() -> None:
    def said(of: str, offset: int, writer: str | None) -> Event:
        one = event("a", node=of, at_ns=None, source="srun.out", offset=offset)
        return structs.replace(one, printer=Printer(node=writer))

    assert order(said("beta", 10, None), said("alpha", 20, None)) == "before"
    assert order(said("beta", 10, "beta"), said("alpha", 20, "alpha")) == "concurrent"


def test_a_later_generation_of_a_file_is_not_ordered_by_offset() -> None:
    a = event("a", at_ns=None, offset=10)
    b = Event(**{**{f: getattr(a, f) for f in a.__struct_fields__}, "generation": "1", "offset": 5})
    assert order(a, b) == "concurrent"


def test_a_stamp_that_contradicts_the_order_in_the_file_wins() -> None:
    a = event("a", at_ns=T0 + 10 * SECOND, offset=10)
    b = event("b", at_ns=T0, offset=20)
    assert order(a, b) == "after"


def test_between_clocks_only_bounds_that_do_not_overlap_decide() -> None:
    a = event("a", node="alpha", at_ns=T0, bound_ns=5 * SECOND)
    near = event("b", node="beta", at_ns=T0 + 9 * SECOND, bound_ns=5 * SECOND)
    far = event("b", node="beta", at_ns=T0 + 11 * SECOND, bound_ns=5 * SECOND)
    assert order(a, near) == "concurrent"
    assert order(a, far) == "before"
    assert order(far, a) == "after"


def test_an_event_without_time_is_concurrent_with_every_other_file() -> None:
    assert order(event("a", at_ns=None, node="alpha"), event("b", at_ns=T0, node="beta")) == "concurrent"


def test_a_stamp_of_a_kernel_without_a_wall_clock_compares_with_its_own_kernel_only() -> None:
    a = event("a", at_ns=5 * SECOND, clock_id="beta/boot/kernel", node="beta", source="one")
    b = event("b", at_ns=6 * SECOND, clock_id="beta/boot/kernel", node="beta", source="two")
    other = event("c", at_ns=T0, node="alpha", bound_ns=TIME_MAX_NS // 2)
    assert order(a, b) == "before"
    assert order(a, other) == "concurrent"


def test_stamps_of_one_kernel_are_exact_where_the_wall_clock_is_coarse() -> None:
    def stamped(name: str, raw_ns: int, boot: str = "alpha/b1/kernel", **fields: object) -> Event:
        kernel = ClockStamp(clock_id=boot, raw_ns=raw_ns, resolution_ns=1_000)
        return structs.replace(event(name, at_ns=T0, resolution_ns=SECOND, **fields), kernel=kernel)  # type: ignore[arg-type]

    a, b = stamped("a", 700_000, source="kern.log"), stamped("b", 800_000, source="dmesg.log")
    assert (order(a, b), order(b, a)) == ("before", "after")
    assert lag_ns(a, b) == (99_000, 101_000)
    other = stamped("c", 5_000, "alpha/b2/kernel", source="dmesg.log")
    assert order(a, other) == "concurrent"
    assert lag_ns(a, other) == (-SECOND, SECOND)
    assert order(a, event("d", at_ns=T0 + 2 * SECOND, source="rank0.log")) == "before"


def test_the_lag_between_clocks_is_as_wide_as_the_bounds() -> None:
    a = event("a", node="alpha", at_ns=T0, bound_ns=2 * SECOND)
    b = event("b", node="beta", at_ns=T0 + 10 * SECOND, bound_ns=3 * SECOND)
    assert lag_ns(a, b) == (5 * SECOND, 15 * SECOND)
    assert lag_ns(a, event("c", at_ns=None, node="beta")) is None


def _measured(name: str, node: str, at_ns: int, u99_ns: int, broker: int = 1) -> Event:
    one = event(name, node=node, at_ns=at_ns, bound_ns=2_000_000)
    return structs.replace(one, u99_ns=u99_ns, reference_broker=broker)


def test_what_overlaps_by_certain_bounds_may_be_probable_by_calibrated_ones() -> None:
    a, near = _measured("a", "alpha", T0, 300_000), _measured("b", "beta", T0 + 300_000, 300_000)
    later, far = _measured("b", "beta", T0 + 900_000, 300_000), _measured("b", "beta", T0 + 5_000_000, 300_000)
    assert sureness(a, near) == ("concurrent", None)
    sure, odds = sureness(a, later)
    assert sure == "probable"
    assert odds is not None
    assert 0.99 < odds <= 1
    assert sureness(later, a) == ("concurrent", None)
    assert sureness(a, far) == ("certain", None)
    assert order(a, later) == "concurrent"


def test_times_by_two_brokers_compare_no_closer_than_their_clocks_agree() -> None:
    a = _measured("a", "alpha", T0, 300_000)
    b, far = _measured("b", "beta", T0 + 3 * SECOND, 300_000, 2), _measured("b", "beta", T0 + 9 * SECOND, 300_000, 2)
    assert order(a, b) == "concurrent"
    assert order(a, far) == "before"
    assert lag_ns(a, b) == (3 * SECOND - 4_000_000 - BROKERS_APART_NS, 3 * SECOND + 4_000_000 + BROKERS_APART_NS)
    assert sureness(a, structs.replace(b, lo_unix_nano=T0, hi_unix_nano=T0 + 4 * SECOND)) == ("concurrent", None)


def test_a_process_ends_after_its_kill_where_the_clocks_cannot_say() -> None:
    def of(name: str, pid: int, at_ns: int, **fields: object) -> Event:
        one = event(name, node="alpha", at_ns=at_ns, bound_ns=SECOND, clock_id=name, **fields)  # type: ignore[arg-type]
        return structs.replace(one, subject=Entity(node="alpha", pid=pid))

    kill = of("host.oom.kill", 71, T0, source="kern.log")
    end, other = of("elastic.failed", 71, T0 - SECOND // 2), of("elastic.failed", 72, T0 - SECOND // 2)
    assert (order(kill, end), order(end, kill)) == ("before", "after")
    assert order(kill, other) == "concurrent"
    assert order(kill, of("elastic.failed", 71, T0 - 3 * SECOND)) == "after"


@given(any_events(least=2, most=2))
def test_order_is_antisymmetric(pair: list[Event]) -> None:
    mirrored = {"before": "after", "after": "before", "concurrent": "concurrent"}
    assert order(pair[0], pair[1]) == mirrored[order(pair[1], pair[0])]


@given(any_events(least=2, most=8), st.randoms())
def test_the_canonical_order_does_not_depend_on_the_order_of_arrival(events: list[Event], random: object) -> None:
    mixed = list(events)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert sorted(mixed, key=canonical) == sorted(events, key=canonical)


def test_groups_that_were_aligned_by_their_logs_compare_no_closer_than_their_timelines_may_be() -> None:
    a, b = _measured("a", "alpha", T0, 1_000, -1), _measured("b", "beta", T0 + 12 * SECOND, 1_000, -2)
    assert order(a, b) == "concurrent"
    assert order(a, structs.replace(b, reference_broker=-1)) == "before"
    assert order(a, structs.replace(b, reference_broker=None)) == "before"
