"""Printed times become integers; what they leave out is said, and filled in from outside."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.parse import parse_line
from pipeline.core.stamps import NS, Stamp, date_of, days_of, resolve, stamp_of


def unix_ns(*parts: int, offset_h: int = 0) -> int:
    moment = datetime(*parts, tzinfo=timezone(timedelta(hours=offset_h)))  # type: ignore[arg-type,misc]
    return int(moment.timestamp()) * NS


def stamp_in(line: str) -> Stamp:
    stamp = parse_line(line).stamp
    assert stamp is not None
    return stamp


@pytest.mark.parametrize(
    ("line", "fraction_ns", "resolution_ns", "zone_h"),
    [
        ("2026-08-10T15:36:05,123456+00:00 x", 123_456_000, 1_000, 0),
        ("2026-08-10T15:36:05+0800 x", 0, NS, 8),
        ("2026-08-10T15:36:05+08:00 x", 0, NS, 8),
        ("2026-08-10T15:36:05.123456789Z x", 123_456_789, 1, 0),
        ("2026-08-10T15:36:05.5-05:30 x", 500_000_000, 100_000_000, None),
        ("2026-08-10T15:36:05.123456789+08:00 stderr F x", 123_456_789, 1, 8),
        ('{"log":"x\\n","stream":"stderr","time":"2026-08-10T15:36:05.123Z"}', 123_000_000, 1_000_000, 0),
        ("<34>1 2026-08-10T15:36:05.123456+08:00 gpu01 kernel - - - x", 123_456_000, 1_000, 8),
        ('1 2026-08-10T15:36:05Z gpu01 slurmd 77 ID7 [meta@1 x="y"] x', 0, NS, 0),
        ("Mon 2026-08-10 15:36:05 UTC gpu01 kernel: x", 0, NS, 0),
        ("Mon Aug 10 15:36:05 UTC 2026 x", 0, NS, 0),
        ("[2026-08-10T15:36:05.123-07:00] x", 123_000_000, 1_000_000, -7),
        ('time="2026-08-10T15:36:05.123456789Z" level=error msg="x"', 123_456_789, 1, 0),
        ("1a | 08/10/2026 | 15:36:05 UTC | Fan #0x41 | Lower Critical going low | Asserted", 0, NS, 0),
    ],
)
def test_stamps_with_a_zone_are_exact(line: str, fraction_ns: int, resolution_ns: int, zone_h: int | None) -> None:
    stamp = stamp_in(line)
    assert stamp.has_zone
    assert stamp.has_year
    assert stamp.resolution_ns == resolution_ns
    hours = -5.5 if zone_h is None else zone_h
    expected = unix_ns(2026, 8, 10, 15, 36, 5) - int(hours * 3600) * NS + fraction_ns
    assert stamp.ns == expected
    assert resolve(stamp, 1999, 7200) == (expected, resolution_ns)


@pytest.mark.parametrize(
    ("line", "fraction_ns", "resolution_ns"),
    [
        ("[Mon Aug 10 15:36:05 2026] x", 0, NS),
        ("[2026-08-10 15:36:05] gpu01:4711:4890 [3] init.cc:1356 NCCL WARN x", 0, NS),
        ("[2026-08-10 15:36:05] x", 0, NS),
        ("2026-08-10 15:36:05,123 - name - ERROR - x", 123_000_000, 1_000_000),
        (
            "[2026-08-10 15:36:05,123] torch.distributed.elastic.multiprocessing.api: [WARNING] x",
            123_000_000,
            1_000_000,
        ),
        (" [2026-08-10 15:36:05.123456] iteration 3", 123_456_000, 1_000),
        ("[Aug 10 2026 15:36:05] [ERROR] [tid 841] x", 0, NS),
        ("[2026-08-10T15:36:05.123] x", 123_000_000, 1_000_000),
        ("[2026-08-10 15:36:05.12] gpu01:4711:4890 [3] init.cc:1356 NCCL WARN x", 120_000_000, 10_000_000),
        ("2026-08-10 15:36:05.123 gpu01:4711:4890 [3] init.cc:1356 NCCL WARN x", 123_000_000, 1_000_000),
        ("Mon Aug 10 15:36:05 2026 gpu01:4711:4890 [3] init.cc:1356 NCCL WARN x", 0, NS),
        ("08/10/26 15:36:05 gpu01:4711:4890 [3] init.cc:1356 NCCL WARN x", 0, NS),
        ("2026-08-10 15:36:05.123 | ERROR    | trainer.loop:run:12 - x", 123_000_000, 1_000_000),
        ("08/10/2026 15:36:05 - INFO - __main__ - x", 0, NS),
        ("08/10/2026 03:36:05 PM - x", 0, NS),
        ("[08/10/26 15:36:05] x", 0, NS),
        ("[08/10/2026-15:36:05] [TRT] [E] x", 0, NS),
        ("2026-08-10 15:36:05 [ERROR] x", 0, NS),
        ("2026-08-10 15:36:05,123\tERROR worker.py:1 -- x", 123_000_000, 1_000_000),
        ("[2026-08-10 15:36:05,123 E 4711 4890] (raylet) node_manager.cc:31: x", 123_000_000, 1_000_000),
        ("\x1b[36m2026-08-10 15:36:05\x1b[0m [ERROR] x", 0, NS),
        ("2026/08/10 15:36:05.123, GPU-5e0a, 0x0", 123_000_000, 1_000_000),
        ("E20260810 15:36:05.945860 12345 pool.cc:12] x", 945_860_000, 1_000),
        ("1a | 08/10/2026 | 15:36:05 | Power Supply #0x51 | Power Supply AC lost | Asserted", 0, NS),
        ("   1 | 08/10/26 | 15:36:05 CST | Fan #0x41 | Lower Critical going low | Asserted", 0, NS),
        ("Mon 2026-08-10 15:36:05.123456 CEST gpu01 kernel: x", 123_456_000, 1_000),
    ],
)
def test_stamps_without_a_zone_are_read_as_if_utc_and_moved_by_the_given_one(
    line: str, fraction_ns: int, resolution_ns: int
) -> None:
    stamp = stamp_in(line)
    assert stamp.has_year
    assert not stamp.has_zone
    assert stamp.ns == unix_ns(2026, 8, 10, 15, 36, 5) + fraction_ns
    assert resolve(stamp, None, 8 * 3600) == (unix_ns(2026, 8, 10, 15, 36, 5, offset_h=8) + fraction_ns, resolution_ns)


@pytest.mark.parametrize(
    ("line", "fraction_ns", "resolution_ns"),
    [
        ("Aug 10 15:36:05 gpu01 kernel: x", 0, NS),
        ("Aug 10 15:36:05.123456 gpu01 kernel: x", 123_456_000, 1_000),
        ("[rank0]:[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:1899] x", 0, NS),
        ("E0810 15:36:05.945860 12345 ProcessGroupNCCL.cpp:474] x", 945_860_000, 1_000),
        ("W0810 15:36:05.123000 12345 torch/distributed/elastic/multiprocessing/api.py:897] x", 123_000_000, 1_000_000),
        ("I0810 15:36:05.123456       1 controller.go:115] x", 123_456_000, 1_000),
        ("<34>Aug 10 15:36:05 gpu01 kernel: x", 0, NS),
        ("Aug 10 15:36:05 gpu01 kernel: [56701.234567] x", 0, NS),
        ("[Aug 10 15:36:05.5] x", 500_000_000, 100_000_000),
        ("[08/10 15:36:05] x", 0, NS),
        ("[08/10 15:36:05 d2.engine.train_loop]: x", 0, NS),
        ("08/10 15:36:05 x", 0, NS),
    ],
)
def test_stamps_without_a_year_take_the_given_one(line: str, fraction_ns: int, resolution_ns: int) -> None:
    stamp = stamp_in(line)
    assert not stamp.has_year
    assert resolve(stamp, None, 0) is None
    assert resolve(stamp, 2026, 0) == (unix_ns(2026, 8, 10, 15, 36, 5) + fraction_ns, resolution_ns)


@pytest.mark.parametrize(("printed", "month", "day"), [("E129", 1, 29), ("E1129", 11, 29), ("W101", 1, 1)])
def test_the_month_of_torch_is_not_padded(printed: str, month: int, day: int) -> None:
    stamp = stamp_in(f"[rank0]:[{printed} 15:36:05.945860779 socket.cpp:1] x")
    assert resolve(stamp, 2026, 0) == (unix_ns(2026, month, day, 15, 36, 5), NS)


EPOCH = 1_786_376_165  # 2026-08-10T15:36:05Z


@pytest.mark.parametrize(
    ("line", "fraction_ns", "resolution_ns"),
    [
        (f"{EPOCH}.123456 gpu01 python[1]: x", 123_456_000, 1_000),
        (f"{EPOCH} INFO x", 0, NS),
        (f"{EPOCH}123 x", 123_000_000, 1_000_000),
        (f"{EPOCH}123456 x", 123_456_000, 1_000),
        (f"{EPOCH}123456789 x", 123_456_789, 1),
        (f"[{EPOCH}.123456] [gpu01:4711:0] x", 123_456_000, 1_000),
        (f"[{EPOCH}123] x", 123_000_000, 1_000_000),
        (f'{{"ts":{EPOCH},"msg":"x"}}', 0, NS),
        (f'{{"ts":{EPOCH}.123456789,"msg":"x"}}', 123_456_789, 1),
        (f'{{"ts":{EPOCH}123.25,"msg":"x"}}', 123_250_000, 10_000),
        (f'{{"timestamp":"{EPOCH}123","msg":"x"}}', 123_000_000, 1_000_000),
        (f'{{"timeUnixNano":"{EPOCH}123456789","msg":"x"}}', 123_456_789, 1),
        (f'{{"MESSAGE":"x","__REALTIME_TIMESTAMP":"{EPOCH}123456"}}', 123_456_000, 1_000),
    ],
)
def test_counts_since_1970_keep_all_their_digits(line: str, fraction_ns: int, resolution_ns: int) -> None:
    stamp = stamp_in(line)
    assert (stamp.has_year, stamp.has_zone) == (True, True)
    assert resolve(stamp, None, 7200) == (EPOCH * NS + fraction_ns, resolution_ns)


@pytest.mark.parametrize(
    "line",
    [
        "1786376165 bytes in 3 files", "1786376165 of 2000000000 tokens", "9786376165.5 x", "0786376165123 x",
        "17863761651 x", "[17863761651] x", '{"ts":1e400,"msg":"x"}', '{"ts":12.5,"msg":"x"}', '{"ts":true,"msg":"x"}',
        '{"ts":-1786376165,"msg":"x"}',
    ],
)  # fmt: skip
def test_a_number_that_is_no_time_of_these_decades_is_no_stamp(line: str) -> None:
    assert parse_line(line).stamp is None


@given(st.integers(EPOCH, 2 * EPOCH), st.integers(0, NS - 1), st.integers(1, 9))
def test_no_digit_of_a_number_in_an_object_is_lost_to_floating_point(seconds: int, nanos: int, digits: int) -> None:
    kept = f"{nanos:09}"[:digits]
    stamp = parse_line(f'{{"ts":{seconds}.{kept},"msg":"x"}}').stamp
    assert stamp is not None
    assert (stamp.ns, stamp.resolution_ns) == (seconds * NS + int(kept.ljust(9, "0")), 10 ** (9 - digits))


def test_the_minute_of_the_relative_form_of_dmesg_is_as_wide_as_a_minute() -> None:
    assert resolve(stamp_in("[Aug10 15:36] x"), 2026, 0) == (unix_ns(2026, 8, 10, 15, 36), 60 * NS)
    assert resolve(stamp_in("[Aug 1 15:36] x"), 2026, 0) == (unix_ns(2026, 8, 1, 15, 36), 60 * NS)


@pytest.mark.parametrize("line", ["[<    0.000012>] x", "[  +0.000012] x"])
def test_a_line_with_the_time_since_the_line_before_has_no_time_of_its_own(line: str) -> None:
    parsed = parse_line(line)
    assert (parsed.stamp, parsed.boot_ns, parsed.body) == (None, None, "x")


@pytest.mark.parametrize(
    "line",
    [
        "[56701.234567] x", "[56701.234567 <    0.000012>] x", "<6>[56701.234567] x", "[56701.234567] gpu01 kernel: x",
        "kern  :err   : [56701.234567] [  T1946] x", "4,1234,56701234567,-,caller=T1946;x",
        "Aug 10 15:36:05 gpu01 kernel: [56701.234567] x",
    ],
)  # fmt: skip
def test_stamps_of_the_kernel_are_exact(line: str) -> None:
    parsed = parse_line(line)
    assert (parsed.boot_ns, parsed.body) == (56_701_234_567_000, "x")


@pytest.mark.parametrize("line", ["15:36:05.123 x", "[15:36:05.123] x", "15:36:05,123 ERROR x"])
def test_a_time_without_a_date_takes_the_day_that_is_nearest(line: str) -> None:
    stamp = stamp_in(line)
    assert not stamp.has_date
    assert resolve(stamp, 2026, 0) is None
    midnight = unix_ns(2026, 8, 11)
    assert resolve(stamp, None, 0, midnight) == (unix_ns(2026, 8, 10, 15, 36, 5) + 123_000_000, 1_000_000)
    assert resolve(stamp, None, 8 * 3600, midnight) == (unix_ns(2026, 8, 11, 7, 36, 5) + 123_000_000, 1_000_000)


def test_of_nested_stamps_one_without_a_date_never_counts() -> None:
    parsed = parse_line("Aug 10 15:36:05 gpu01 app[1]: 15:36:05.123 x")
    assert (parsed.stamp and parsed.stamp.kind, parsed.other and parsed.other.kind) == ("syslog", "time")


def test_a_december_line_read_in_january_is_of_the_year_before() -> None:
    stamp = stamp_in("Dec 31 23:59:58 gpu01 kernel: x")
    assert resolve(stamp, 2027, 0, unix_ns(2027, 1, 1)) == (unix_ns(2026, 12, 31, 23, 59, 58), NS)


def test_a_january_line_read_in_december_by_a_slow_clock_is_of_the_year_after() -> None:
    stamp = stamp_in("Jan  1 00:00:01 gpu01 kernel: x")
    assert resolve(stamp, 2026, 0, unix_ns(2026, 12, 31, 23, 59, 59)) == (unix_ns(2027, 1, 1, 0, 0, 1), NS)


def test_a_leap_day_has_no_time_in_a_year_without_one() -> None:
    stamp = stamp_in("Feb 29 12:00:00 gpu01 kernel: x")
    assert resolve(stamp, 2026, 0) is None
    assert resolve(stamp, 2028, 0) == (unix_ns(2028, 2, 29, 12), NS)
    assert resolve(stamp, None, 0, unix_ns(2027, 6, 1)) == (unix_ns(2028, 2, 29, 12), NS)
    assert resolve(stamp, None, 0, unix_ns(2025, 6, 1)) == (unix_ns(2024, 2, 29, 12), NS)
    assert resolve(stamp, None, 0, read_unix_ns=unix_ns(2027, 6, 1)) == (unix_ns(2024, 2, 29, 12), NS)


@pytest.mark.parametrize(("month", "year"), [("Jan", 2026), ("Aug", 2026), ("Oct", 2025), ("Dec", 2025)])
def test_a_line_that_was_read_is_never_of_a_later_year(month: str, year: int) -> None:
    found = resolve(stamp_in(f"{month}  5 12:00:00 gpu01 kernel: x"), None, 0, read_unix_ns=unix_ns(2026, 8, 10))
    assert found is not None
    assert datetime.fromtimestamp(found[0] // NS, UTC).year == year


def test_a_local_new_year_may_be_before_or_after_that_of_utc() -> None:
    first = stamp_in("Jan  1 04:00:00 gpu01 kernel: x")
    assert resolve(first, 2027, 8 * 3600) == (unix_ns(2026, 12, 31, 20), NS)
    assert resolve(first, None, 8 * 3600, unix_ns(2026, 12, 31, 23)) == (unix_ns(2026, 12, 31, 20), NS)
    last = stamp_in("Dec 31 20:00:00 gpu01 kernel: x")
    assert resolve(last, 2026, -8 * 3600) == (unix_ns(2027, 1, 1, 4), NS)


@pytest.mark.parametrize(
    "line",
    [
        "2026-13-10T15:36:05Z x", "2026-02-29T15:36:05Z x", "2026-08-10T24:36:05Z x", "2026-08-10T15:60:05Z x",
        "2026-08-10T15:36:61Z x", "[E1340 15:36:05.945860779 ProcessGroupNCCL.cpp:1] x", "2926-08-10T15:36:05Z x",
    ],
)  # fmt: skip
def test_an_impossible_date_is_no_stamp_and_stays_in_the_body(line: str) -> None:
    parsed = parse_line(line)
    assert parsed.stamp is None
    assert parsed.body == line


@given(st.dates(min_value=datetime(1970, 1, 1, tzinfo=UTC).date(), max_value=datetime(2200, 12, 31, tzinfo=UTC).date()))
def test_days_and_dates_are_inverse_and_agree_with_datetime(day: date) -> None:
    days = days_of(day.year, day.month, day.day)
    assert days is not None
    assert days == (day - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    assert date_of(days) == (day.year, day.month, day.day)


@given(st.integers(), st.integers(), st.integers())
def test_no_numbers_raise(year: int, month: int, day: int) -> None:
    days_of(year, month, day)


@given(
    st.dictionaries(
        st.sampled_from(["year", "month", "day", "hour", "minute", "second"]), st.from_regex(r"\A\d{1,4}\Z")
    )
)
def test_no_digits_raise(groups: dict[str, str]) -> None:
    ascii_only = {key: value for key, value in groups.items() if value.isascii()}
    stamp_of({"day": "1", **ascii_only}, "x")


@pytest.mark.parametrize(
    ("printed", "month"),
    [("Mär  4", 3), ("mai 04", 5), ("févr. 04", 2), ("sie 04", 8), ("11月 04", 11), ("дек 04", 12), ("gen  4", 1)],
)
def test_a_journal_in_another_language_has_a_date_a_host_and_a_process(printed: str, month: int) -> None:
    parsed = parse_line(f"{printed} 07:56:59 n7 kernel: hello")
    assert parsed.stamp is not None
    assert parsed.stamp.ns == unix_ns(2000, month, 4, 7, 56, 59)
    assert (parsed.node, parsed.process, parsed.body) == ("n7", "kernel", "hello")
