"""What stamps leave out is inferred from neighbours, marked, and as wide as it is unsure."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.align import NodeFold
from pipeline.core.dating import BootReading, Dating, ZoneWatch, attributes_of, iso_stamp, told, zone_between
from pipeline.core.neighbours import Sample, infer
from pipeline.core.parse import parse_line
from pipeline.core.stamps import NS, Stamp
from pipeline.core.times import BMC_BOUND_NS, COMPUTED_NS, DEFAULT_BOUND_NS
from schemas import signals
from schemas.records import ClockReading, Event, EventBatch, RawLine
from schemas.vocabulary import Run
from schemas.zones import zone_text
from tests.strategies import T0, raw_batch

DAY, HOUR = 86_400 * NS, 3600 * NS
SIGNALS = signals.load()
NODE = "gx-01"
XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid={pid}, name=python, GPU has fallen off the bus."


def ns(*parts: int, zone_h: float = 0) -> int:
    """A local time as ns since 1970."""
    moment = datetime(*parts, tzinfo=UTC) - timedelta(hours=zone_h)  # type: ignore[arg-type,misc]
    return int(moment.timestamp()) * NS


NOON = ns(2026, 8, 10, 12)


# --- shapes of section 2 of the catalogue --------------------------------------------------------------------------


class Moment(NamedTuple):
    """A moment of one node: on the wall, in its zone, and since its boot."""

    unix_ns: int
    zone_s: int
    boot_ns: int

    def local(self, form: str) -> str:
        """The local time; %N is the nine digits behind the second."""
        whole = datetime.fromtimestamp(self.unix_ns // NS + self.zone_s, UTC)
        return whole.strftime(form.replace("%N", f"{self.unix_ns % NS:09}"))

    def part(self, digits: int) -> str:
        """The first digits behind the second."""
        return f"{self.unix_ns % NS:09}"[:digits]

    @property
    def offset(self) -> str:
        """The zone as +HH:MM."""
        return zone_text(self.zone_s)

    @property
    def boot(self) -> str:
        """Seconds since boot with six digits behind the point."""
        return f"{self.boot_ns // NS}.{self.boot_ns % NS // 1000:06}"


class Shape(NamedTuple):
    """How a line is written, and the size of its last digit that is true."""

    render: Callable[[Moment, str], str]
    resolution_ns: int
    clock: str = "wall"
    off_ns: int = 0


MS, US = 1_000_000, 1_000
SHAPES: Mapping[str, Shape] = {
    "printk": Shape(lambda m, body: f"[{m.boot:>12}] {body}", US),
    "printk with caller": Shape(lambda m, body: f"[{m.boot:>12}] [  T1946] {body}", US),
    "kmsg": Shape(lambda m, body: f"4,1234,{m.boot_ns // 1000},-,caller=T1946;{body}", US),
    "dmesg --raw": Shape(lambda m, body: f"<4>[{m.boot:>12}] {body}", US),
    "dmesg --decode": Shape(lambda m, body: f"kern  :err   : [{m.boot:>12}] {body}", US),
    "journal short-monotonic": Shape(lambda m, body: f"[{m.boot:>12}] {NODE} kernel: {body}", US),
    "dmesg --ctime": Shape(lambda m, body: m.local(f"[%a %b %e %H:%M:%S %Y] {body}"), NS, off_ns=COMPUTED_NS),
    "dmesg iso": Shape(
        lambda m, body: m.local(f"%Y-%m-%dT%H:%M:%S,{m.part(6)}{m.offset} {body}"), US, off_ns=COMPUTED_NS
    ),
    "dmesg --reltime": Shape(lambda m, body: m.local(f"[%b%e %H:%M] {body}"), 60 * NS, off_ns=COMPUTED_NS),
    "journal short": Shape(lambda m, body: m.local(f"%b %d %H:%M:%S {NODE} kernel: {body}"), NS),
    "journal short-precise": Shape(lambda m, body: m.local(f"%b %d %H:%M:%S.{m.part(6)} {NODE} kernel: {body}"), US),
    "journal short-iso": Shape(
        lambda m, body: m.local(f"%Y-%m-%dT%H:%M:%S{m.offset.replace(':', '')} {NODE} kernel: {body}"), NS
    ),
    "journal short-iso-precise": Shape(
        lambda m, body: m.local(f"%Y-%m-%dT%H:%M:%S.{m.part(6)}{m.offset} {NODE} kernel: {body}"), US
    ),
    "journal short-unix": Shape(lambda m, body: f"{m.unix_ns // NS}.{m.part(6)} {NODE} kernel: {body}", US),
    "journal json": Shape(
        lambda m, body: (
            f'{{"__REALTIME_TIMESTAMP":"{m.unix_ns // US}","_HOSTNAME":"{NODE}","MESSAGE":"{body}",'
            f'"_SOURCE_MONOTONIC_TIMESTAMP":"{m.boot_ns // US}"}}'
        ),
        US,
    ),
    "RFC 3164": Shape(lambda m, body: m.local(f"%b %e %H:%M:%S {NODE} kernel: [{m.boot:>12}] {body}"), NS),
    "RFC 3164 with priority": Shape(lambda m, body: m.local(f"<4>%b %e %H:%M:%S {NODE} kernel: {body}"), NS),
    "RFC 5424": Shape(
        lambda m, body: m.local(f"<34>1 %Y-%m-%dT%H:%M:%S.{m.part(6)}{m.offset} {NODE} kernel - - - {body}"), US
    ),
    "Python logging": Shape(lambda m, body: m.local(f"%Y-%m-%d %H:%M:%S,{m.part(3)} - name - ERROR - {body}"), MS),
    "in brackets": Shape(lambda m, body: m.local(f"[%Y-%m-%d %H:%M:%S] {body}"), NS),
    "torch C++": Shape(
        # The fraction is of another clock: the digits of the boot clock, backwards.
        lambda m, body: (
            f"[rank0]:[E{m.local('%m').lstrip('0')}{m.local('%d %H:%M:%S')}.{m.part(9)[::-1]} socket.cpp:697] {body}"
        ),
        NS,
    ),
    "glog": Shape(lambda m, body: m.local(f"E%m%d %H:%M:%S.{m.part(6)} 12345 socket.cpp:474] {body}"), US),
    "klog": Shape(lambda m, body: m.local(f"E%m%d %H:%M:%S.{m.part(6)}       1 controller.go:115] {body}"), US),
    "torch Python": Shape(
        lambda m, body: m.local(f"[%Y-%m-%d %H:%M:%S,{m.part(3)}] torch.distributed.run: [WARNING] {body}"), MS
    ),
    "Megatron": Shape(lambda m, body: m.local(f" [%Y-%m-%d %H:%M:%S.{m.part(6)}] {body}"), US),
    "fabric manager": Shape(lambda m, body: m.local(f"[%b %d %Y %H:%M:%S] [ERROR] [tid 841] {body}"), NS),
    "Slurm": Shape(lambda m, body: m.local(f"[%Y-%m-%dT%H:%M:%S.{m.part(3)}] {body}"), MS),
    "Slurm, short": Shape(lambda m, body: m.local(f"[%b %d %H:%M:%S] {body}"), NS),
    "CRI": Shape(lambda m, body: m.local(f"%Y-%m-%dT%H:%M:%S.{m.part(9)}{m.offset} stderr F {body}"), 1),
    "IPMI": Shape(lambda m, body: m.local(f"1a | %m/%d/%Y | %H:%M:%S | {body}"), NS, clock="bmc"),
    "epoch s": Shape(lambda m, body: f"[{m.unix_ns // NS}.{m.part(6)}] {body}", US),
    "epoch ms": Shape(lambda m, body: f"{m.unix_ns // MS} {body}", MS),
    "epoch us": Shape(lambda m, body: f"{m.unix_ns // US} {body}", US),
    "epoch ns": Shape(lambda m, body: f"{m.unix_ns} {body}", 1),
    "epoch in JSON": Shape(lambda m, body: f'{{"ts":{m.unix_ns // NS}.{m.part(9)},"msg":"{body}"}}', 1),
    "epoch ns in JSON": Shape(lambda m, body: f'{{"timeUnixNano":"{m.unix_ns}","msg":"{body}"}}', 1),
    "Loguru": Shape(lambda m, body: m.local(f"%Y-%m-%d %H:%M:%S.{m.part(3)} | ERROR    | m.n:fn:12 - {body}"), MS),
    "transformers": Shape(lambda m, body: m.local(f"%m/%d/%Y %H:%M:%S - ERROR - {body}"), NS),
    "month and day": Shape(lambda m, body: m.local(f"[%m/%d %H:%M:%S] {body}"), NS),
    "rich": Shape(lambda m, body: m.local(f"[%m/%d/%y %H:%M:%S] {body}"), NS),
    "Ray": Shape(lambda m, body: m.local(f"%Y-%m-%d %H:%M:%S,{m.part(3)}\tERROR worker.py:1 -- {body}"), MS),
    "coloured": Shape(lambda m, body: m.local(f"\x1b[36m%Y-%m-%d %H:%M:%S\x1b[0m [ERROR] {body}"), NS),
    "time alone": Shape(lambda m, body: m.local(f"%H:%M:%S.{m.part(3)} {body}"), MS),
}
ON_THE_WALL = {name: shape for name, shape in SHAPES.items() if shape.clock == "wall" and not shape.off_ns}
WITH_BOOT_ALONE = ("printk", "printk with caller", "kmsg", "dmesg --raw", "dmesg --decode", "journal short-monotonic")
WITHOUT_YEAR = (
    "journal short", "journal short-precise", "RFC 3164", "RFC 3164 with priority", "torch C++", "glog", "klog",
    "Slurm, short", "month and day",
)  # fmt: skip


# --- reading -------------------------------------------------------------------------------------------------------


def samples(files: Mapping[str, Iterable[str]], *, node: str = NODE, written_ns: int | None = None) -> list[Sample]:
    """What the lines of files of one node show. Names with `kern` are no applications."""
    found = []
    for name, lines in files.items():
        sample = Sample(name=name, node=node, is_application="kern" not in name, written_ns=written_ns)
        for line in lines:
            sample.add(parse_line(line))
        found.append(sample)
    return found


def read(lines: Iterable[str], dating: Dating, *, read_ns: Iterable[int] = (), kind: str = "kernel") -> list[Event]:
    """The events of one file, in its order, as Align makes them."""
    seen_ns = list(read_ns)
    raw = [
        RawLine(
            seq=number, source="file", generation="0", offset=number, line_no=number, body=line,
            observed_time_unix_nano=seen_ns[number] if seen_ns else 0,
        )
        for number, line in enumerate(lines)
    ]  # fmt: skip
    fold, events = NodeFold(SIGNALS), list[Event]()
    for seq, line in enumerate(raw, 1):
        attributes = {"file": {"kind": kind, "node": NODE, "job.id": "j", **attributes_of(dating)}}
        now_ns = seen_ns[seq - 1] if seen_ns else 0
        clock = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=now_ns)
        run: Run = "live" if seen_ns else "post_mortem"
        batch = raw_batch(NODE, seq, [line], attributes=attributes, run=run, clock=clock)
        outputs = fold.apply(msgspec.structs.replace(batch, boot_id=""), now_ns=now_ns)
        events += [e for output in outputs if isinstance(output.record, EventBatch) for e in output.record.events]
    return sorted({event.event_id: event for event in events}.values(), key=lambda event: event.offset)


def integers(event: Event) -> list[object]:
    """All that an event says of time."""
    kernel = event.kernel
    return [
        event.raw_ns, event.resolution_ns, event.aligned_time_unix_nano, event.lo_unix_nano, event.hi_unix_nano,
        *([kernel.raw_ns, kernel.resolution_ns] if kernel else []),
    ]  # fmt: skip


zones_s = st.integers(-44, 44).map(lambda quarter: quarter * 900)
steps_ns = st.lists(st.integers(-2 * NS, HOUR // 2), min_size=2, max_size=6)


@st.composite
def moments(draw: st.DrawFn, *, around: int | None = None) -> list[Moment]:
    """A time line of one node, as its lines come: here and there a little backwards."""
    at = draw(st.integers(ns(2021, 1, 1), ns(2029, 12, 1))) if around is None else around
    zone_s, up_ns = draw(zones_s), draw(st.integers(HOUR, 40 * DAY))
    line = list[Moment]()
    for step in draw(steps_ns):
        at += step
        line.append(Moment(at, zone_s, at - line[0].unix_ns + up_ns if line else up_ns))
    return line


# --- every shape comes back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=30, deadline=None)
@given(line=moments())
def test_a_time_in_any_shape_comes_back_within_its_last_digit(name: str, line: list[Moment]) -> None:
    shape = SHAPES[name]
    bodies = [XID.format(pid=1000 + number) for number in range(len(line))]
    lines = [shape.render(moment, body) for moment, body in zip(line, bodies, strict=True)]
    # Beside it stands a journal with year and zone that has some of the same lines.
    beside = [SHAPES["journal short-iso-precise"].render(m, b) for m, b in zip(line[:2], bodies, strict=False)]
    dating = infer(samples({"file-kern": lines, "journal-kern": beside}))["file-kern"]
    events = read(lines, dating)

    assert len(events) == len(line)
    for event, moment in zip(events, line, strict=True):
        assert all(type(each) is int for each in integers(event))
        assert event.clock_id == f"{NODE}/{shape.clock}"
        assert event.aligned_time_unix_nano is not None
        assert event.raw_ns is not None
        late_ns = moment.unix_ns - event.aligned_time_unix_nano
        if name in WITH_BOOT_ALONE:
            assert event.inferred == ["boot"]
            assert abs(late_ns) <= event.resolution_ns
        elif shape.clock == "bmc":
            # In which zone it is kept nobody says.
            assert event.lo_unix_nano <= moment.unix_ns <= event.hi_unix_nano
            assert "zone" in event.inferred
        else:
            assert 0 <= late_ns < shape.resolution_ns
            # Last digits that are zeros may be padding, and are not trusted.
            padded = [digits_ns for digits_ns in (1_000, 1_000_000) if event.raw_ns % digits_ns == 0]
            assert event.resolution_ns - 2 * shape.off_ns in {shape.resolution_ns, *padded}
        assert event.lo_unix_nano <= moment.unix_ns <= event.hi_unix_nano
        assert event.raw_ns <= moment.unix_ns <= event.raw_ns + event.resolution_ns or shape.clock == "bmc"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WITHOUT_YEAR), st.integers(-2 * NS, 20 * HOUR)), min_size=2, max_size=8),
    st.integers(2021, 2028), st.sampled_from(["neighbour", "written", "read", "stated"]), zones_s,
)  # fmt: skip
def test_lines_of_one_file_keep_their_order_across_new_year(
    steps: list[tuple[str, int]], year: int, by: str, zone_s: int
) -> None:
    at = ns(year, 12, 31, 23) - sum(step for _, step in steps) // 2 - zone_s * NS
    line, lines = list[Moment](), list[str]()
    for number, (name, step) in enumerate(steps):
        at += step
        line.append(Moment(at, zone_s, at - line[0].unix_ns + HOUR if line else HOUR))
        lines.append(SHAPES[name].render(line[-1], XID.format(pid=1000 + number)))
    first_year = int(line[0].local("%Y"))
    files = {"file-kern": lines}
    if by == "neighbour":
        files["other"] = [line[len(line) // 2].local("[%Y-%m-%d %H:%M:%S] step 3")]
    written_ns = at + HOUR if by == "written" else None
    stated = first_year if by == "stated" else None
    dating = infer(samples(files, written_ns=written_ns), year=stated, zone_s=zone_s)["file-kern"]
    events = read(lines, dating, read_ns=[moment.unix_ns for moment in line] if by == "read" else ())

    assert len(events) == len(line)
    for event, moment, (name, _) in zip(events, line, steps, strict=True):
        assert event.aligned_time_unix_nano is not None
        assert 0 <= moment.unix_ns - event.aligned_time_unix_nano < SHAPES[name].resolution_ns
        assert ("year" in event.inferred) == (by != "stated")
        assert "zone" not in event.inferred


@given(st.integers(0, NS - 1), st.integers(0, NS - 1))
def test_the_fraction_of_torch_is_never_used(one: int, other: int) -> None:
    stamps = [parse_line(f"[rank0]:[E810 15:36:05.{x:09} socket.cpp:697] x").stamp for x in (one, other)]
    assert stamps[0] == stamps[1]
    assert stamps[0] is not None
    assert (stamps[0].ns % NS, stamps[0].resolution_ns) == (0, NS)


@settings(max_examples=60, deadline=None)
@given(
    moments(around=NOON),
    st.lists(st.sampled_from(["IPMI", "journal short-iso", "torch C++", "time alone"]), min_size=2, max_size=8),
)
def test_clocks_that_are_mixed_in_one_file_stay_apart(line: list[Moment], names: list[str]) -> None:
    # A time alone that goes back leaves the day open.
    line = sorted((moment._replace(zone_s=0) for moment in line), key=lambda moment: moment.unix_ns)
    names = names[: len(line)]
    lines = [
        SHAPES[name].render(line[number % len(line)], XID.format(pid=1000 + number))
        for number, name in enumerate(names)
    ]
    dating = infer(samples({"mixed": ["2026-08-10T12:00:00+00:00 step", *lines]}), year=2026, zone_s=0)["mixed"]
    events = read(["2026-08-10T12:00:00+00:00 step", *lines], dating)
    for event, name, moment in zip(events, names, line, strict=False):
        # Whose day nobody tells for certain has a clock of its own.
        certain = event.clock_id == f"{NODE}/{SHAPES[name].clock}"
        assert certain or (name, event.clock_id) == ("time alone", f"{NODE}/file/wall")
        if certain:
            assert event.raw_ns == moment.unix_ns - moment.unix_ns % SHAPES[name].resolution_ns


# --- year and date ----------------------------------------------------------------------------------------------------


SYSLOG = "{stamp} gx-01 kernel: {text}"
LOCAL = "[2026-08-10 15:36:05] step 3 of the training loop"


def inferred(files: Mapping[str, Iterable[str]], name: str, *, written_ns: int | None = None) -> Dating:
    return infer(samples(files, written_ns=written_ns))[name]


@pytest.mark.parametrize(
    "shows_the_year",
    [
        "2026-08-10T15:36:05+00:00 gx-01 kernel: x", "[Mon Aug 10 15:36:05 2026] x",
        "  time      : 2026-08-10_15:36:05", "1786376165.5 gx-01 kernel: x",
        "slurmstepd: error: *** STEP 42.0 ON gx-01 CANCELLED AT 2026-08-10T15:36:05 ***",
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["kern.log", "other.log"])
def test_the_year_is_that_of_any_stamp_beside(shows_the_year: str, where: str) -> None:
    files = {"kern.log": ["Aug 10 14:00:00 gx-01 kernel: x"]}
    files.setdefault(where, []).append(shows_the_year)
    assert inferred(files, "kern.log").near_ns == ns(2026, 8, 10, 14)


def test_the_nearest_stamps_count_for_the_year() -> None:
    files = {"kern.log": ["Dec 31 23:59:58 gx-01 kernel: x"], "rank0.log": ["[2027-01-01 00:00:03] x"]}
    far = samples({"rank9.log": ["[2024-06-01 00:00:03] x"] * 5}, node="gx-02")
    assert infer([*samples(files), *far])["kern.log"].near_ns == ns(2026, 12, 31, 23, 59, 58)
    assert infer([*samples({"kern.log": files["kern.log"]}), *far])["kern.log"].near_ns == ns(2023, 12, 31, 23, 59, 58)


def test_a_date_that_few_of_a_files_lines_show_is_not_the_time_of_the_others() -> None:
    lines = ["[2026-08-10 15:36:05] x"] * 30 + ["[2019-02-01 00:00:00] the data are of this day"]
    assert inferred({"a": [*lines, "Jul  5 00:00:00 gx-01 kernel: x"]}, "a").near_ns == ns(2026, 7, 5)


def test_what_somebody_states_is_never_overridden() -> None:
    files = {"kern.log": ["Aug 10 14:00:00 gx-01 kernel: x"], "b": ["2019-08-10T15:36:05+08:00 gx-01 app: x"]}
    dating = infer(samples(files, written_ns=ns(2021, 1, 1)), year=2026, zone_s=3600)["kern.log"]
    assert (dating.year, dating.near_ns, dating.zone_s, dating.other_zones_s) == (2026, None, 3600, ())
    (event,) = read([SYSLOG.format(stamp="Aug 10 14:00:00", text=XID.format(pid=1))], dating)
    assert (event.aligned_time_unix_nano, event.inferred) == (ns(2026, 8, 10, 13), [])


@pytest.mark.parametrize(
    ("written_ns", "year"), [(ns(2027, 1, 5), 2027), (ns(2026, 12, 31), 2026), (ns(2027, 8, 1), 2027), (0, None)]
)
def test_when_the_file_was_written_is_the_last_hint(written_ns: int, year: int | None) -> None:
    lines = ["Dec 30 08:00:00 gx-01 kernel: x", "Jan  3 00:00:00 gx-01 kernel: x"]
    dating = inferred({"kern.log": lines}, "kern.log", written_ns=written_ns)
    assert dating.near_ns == (None if year is None else ns(year - 1, 12, 30, 8))
    dating = inferred({"kern.log": lines, "b": ["[2020-01-02 00:00:00] x"]}, "kern.log", written_ns=written_ns)
    assert dating.near_ns == ns(2019, 12, 30, 8)


def test_a_leap_day_is_of_a_leap_year_whatever_stands_beside_it() -> None:
    files = {"kern.log": ["Feb 29 08:00:00 gx-01 kernel: x"], "b": ["[2025-03-02 00:00:00] x"]}
    assert inferred(files, "kern.log").near_ns == ns(2024, 2, 29, 8)


def test_a_time_without_a_date_is_of_the_day_of_its_neighbours() -> None:
    files = {"a": ["15:36:05 x", "15:40:00 x"], "b": ["2026-08-10T15:00:00+00:00 x", "2026-08-10T16:00:00+00:00 x"]}
    dating = inferred(files, "a")
    assert (dating.near_ns, dating.spread_ns) == (ns(2026, 8, 10, 15, 36, 5), 0)
    (event,) = read([f"15:36:05 {XID.format(pid=1)}"], dating)
    assert (event.aligned_time_unix_nano, event.inferred) == (ns(2026, 8, 10, 15, 36, 5), ["date", "zone"])


def test_a_time_that_may_be_of_several_days_is_as_wide_as_they_are() -> None:
    files = {"a": ["15:36:05 x"], "b": ["2026-08-10T12:00:00+00:00 x", "2026-08-13T12:00:00+00:00 x"]}
    (event,) = read([f"15:36:05 {XID.format(pid=1)}"], inferred(files, "a"))
    assert event.clock_id == "gx-01/file/wall"
    assert event.lo_unix_nano <= ns(2026, 8, 10, 15, 36, 5)
    assert event.hi_unix_nano >= ns(2026, 8, 12, 15, 36, 5)


@pytest.mark.parametrize(("time", "day"), [("10:00:00", 10), ("18:00:00", 10), ("02:00:00", 11), ("23:59:00", 10)])
def test_a_time_beside_no_day_of_its_neighbours_is_of_the_nearest_or_the_next(time: str, day: int) -> None:
    beside = ["2026-08-10T12:00:00+00:00 x", "2026-08-10T17:00:00+00:00 x"]
    dating = inferred({"a": [f"{time} x"], "b": beside}, "a")
    assert (dating.near_ns, dating.spread_ns) == (ns(2026, 8, day, *map(int, time.split(":"))), DAY)


@pytest.mark.parametrize("zone_h", [-8, 0, 8])
def test_times_without_a_date_pass_midnight(zone_h: int) -> None:
    line = [ns(2026, 8, 10, 23, 30, zone_h=zone_h) + step * HOUR // 4 for step in range(5)]
    times = [Moment(at, zone_h * 3600, 0).local("%H:%M:%S") for at in line]
    beside = [Moment(at, zone_h * 3600, 0).local("[%Y-%m-%d %H:%M:%S] x") for at in (line[0], line[-1])]
    dating = infer(samples({"a": times, "b": beside}), zone_s=zone_h * 3600)["a"]
    events = read([f"{time} {XID.format(pid=number)}" for number, time in enumerate(times)], dating)
    assert [event.aligned_time_unix_nano for event in events] == line


def test_a_time_without_a_date_goes_by_when_the_file_was_written() -> None:
    dating = inferred({"a": ["23:50:00 x", "00:10:00 x"]}, "a", written_ns=ns(2026, 8, 11, 0, 12))
    assert dating.near_ns == ns(2026, 8, 10, 23, 50)
    dating = inferred({"a": ["23:50:00 x"]}, "a", written_ns=ns(2026, 8, 11, 20))
    assert dating.near_ns == ns(2026, 8, 10, 23, 50)


# --- zone -------------------------------------------------------------------------------------------------------------


SAME = "NVRM: loading the open kernel module for x86_64"


def test_the_zone_is_that_of_a_line_that_stands_in_two_files() -> None:
    files = {
        "syslog-kern": [SYSLOG.format(stamp="Aug 10 15:36:05", text=SAME)],
        "journal-kern": [f"2026-08-10T15:36:06.5+08:00 gx-01 kernel: {SAME}"],
    }
    dating = inferred(files, "syslog-kern")
    assert (dating.zone_s, dating.other_zones_s, dating.zone_is_stated) == (8 * 3600, (), False)


@pytest.mark.parametrize(("stamp", "zone_s"), [("07:35:59", 0), ("13:06:05", 19_800), ("15:36:04", 28_800)])
def test_the_zone_of_an_inner_stamp_is_told_by_the_outer_one_and_holds_for_applications(
    stamp: str, zone_s: int
) -> None:
    pod = f"2026-08-10T15:36:05.5+08:00 stderr F 2026-08-10 {stamp},120 - train - INFO - step 3"
    files = {"pod.log": [pod] * 3, "rank0.log": [f"[2026-08-10 {stamp}] x"], "syslog-kern": ["Aug 10 15:36:05 gx-01 x"]}
    datings = infer(samples(files))
    assert [(datings[name].zone_s, datings[name].other_zones_s) for name in ("pod.log", "rank0.log")] == [
        (zone_s, ())
    ] * 2
    # The host is no container: its own zone is the printed one.
    assert datings["syslog-kern"].zone_s == 28_800


def test_the_zone_of_a_stamp_in_an_object_is_told_by_the_stamp_in_front_of_it() -> None:
    line = '2026-08-10T15:36:05.5+08:00 stderr F {"time":"2026-08-10 07:36:05","msg":"step 3"}'
    dating = inferred({"pod.log": [line]}, "pod.log")
    assert (dating.zone_s, dating.other_zones_s) == (0, ())


def test_the_zone_that_a_node_prints_is_taken_where_the_times_fit_no_other() -> None:
    journal = ["2026-08-10T15:00:00+08:00 gx-01 kernel: x", "2026-08-10T16:00:00+08:00 gx-01 kernel: y"]
    dating = inferred({"kern": journal, "rank0.log": [LOCAL]}, "rank0.log")
    assert (dating.zone_s, dating.other_zones_s) == (28_800, ())
    dating = inferred({"kern": journal, "rank0.log": ["[2026-08-10 07:36:05] x"]}, "rank0.log")
    assert (dating.zone_s, dating.other_zones_s) == (0, ())


def test_where_two_zones_fit_the_time_may_be_of_either_and_compares_with_its_like_only() -> None:
    journal = ["2026-08-10T00:00:00+08:00 gx-01 kernel: x", "2026-08-11T23:00:00+08:00 gx-01 kernel: y"]
    dating = inferred({"kern": journal, "rank0.log": [LOCAL]}, "rank0.log")
    assert (dating.zone_s, dating.other_zones_s) == (28_800, (0,))
    (event,) = read([f"[2026-08-10 15:36:05] {XID.format(pid=1)}"], dating)
    assert event.clock_id == "gx-01/local"
    assert event.aligned_time_unix_nano == ns(2026, 8, 10, 7, 36, 5)
    assert event.lo_unix_nano == ns(2026, 8, 10, 7, 36, 5) - DEFAULT_BOUND_NS
    assert event.hi_unix_nano == ns(2026, 8, 10, 15, 36, 5) + NS + DEFAULT_BOUND_NS


def test_without_any_printed_zone_it_is_utc_and_no_wider() -> None:
    dating = inferred({"rank0.log": [LOCAL], "syslog-kern": ["Aug 10 15:36:05 gx-01 kernel: x"]}, "rank0.log")
    assert (dating.zone_s, dating.other_zones_s) == (0, ())
    (event,) = read([f"[2026-08-10 15:36:05] {XID.format(pid=1)}"], dating)
    assert (event.clock_id, event.inferred) == ("gx-01/wall", ["zone"])
    assert event.hi_unix_nano - event.lo_unix_nano == NS + 2 * DEFAULT_BOUND_NS


def test_a_zone_that_other_nodes_print_makes_it_wider_and_leaves_it_utc() -> None:
    far = samples({"kern": ["2026-08-10T15:00:00+02:00 gx-02 kernel: x"]}, node="gx-02")
    dating = infer([*samples({"rank0.log": [LOCAL]}), *far])["rank0.log"]
    assert (dating.zone_s, dating.other_zones_s) == (0, (7200,))
    (event,) = read([f"[2026-08-10 15:36:05] {XID.format(pid=1)}"], dating)
    assert event.lo_unix_nano == ns(2026, 8, 10, 13, 36, 5) - DEFAULT_BOUND_NS
    assert event.hi_unix_nano == ns(2026, 8, 10, 15, 36, 5) + NS + DEFAULT_BOUND_NS


def test_neighbours_that_print_utc_leave_it_utc() -> None:
    files = {"pod.log": ["2026-08-10T15:36:05Z x"], "rank0.log": [LOCAL]}
    assert inferred(files, "rank0.log").other_zones_s == ()


@given(zones_s, st.integers(0, 5 * NS), st.integers(0, NS // 2))
def test_a_zone_is_found_from_a_local_time_and_a_moment(zone_s: int, late_ns: int, early_ns: int) -> None:
    assert zone_between(NOON + zone_s * NS - late_ns, NOON, 5 * NS, NS) == zone_s
    assert zone_between(NOON + zone_s * NS + early_ns, NOON, 5 * NS, NS) == zone_s
    assert zone_between(NOON + zone_s * NS - late_ns - 6 * NS, NOON, 5 * NS, NS) is None


@pytest.mark.parametrize("hours", [-15, 15, 24, -48])
def test_no_zone_is_further_than_fourteen_hours_from_utc(hours: int) -> None:
    assert zone_between(NOON + hours * HOUR, NOON, NS, NS) is None


# --- zone, live -------------------------------------------------------------------------------------------------------


def stamp_at(local_ns: int) -> Stamp:
    stamp = parse_line(Moment(local_ns, 0, 0).local("[%Y-%m-%d %H:%M:%S] x")).stamp
    assert stamp is not None
    return stamp


@given(zones_s, st.lists(st.integers(0, 4 * NS), min_size=3, max_size=6))
def test_three_lines_that_were_read_at_once_tell_the_zone(zone_s: int, late_ns: list[int]) -> None:
    watch, believed = ZoneWatch(), list[bool]()
    for number, late in enumerate(late_ns):
        at = NOON + number * 60 * NS
        believed.append(watch.hear(stamp_at(at + zone_s * NS), at + late, assumed_s=900 * 50))
    assert believed == [False, False, True] + [False] * (len(late_ns) - 3)
    assert watch.zone_s == zone_s


def test_lines_that_were_read_long_after_they_were_written_tell_no_zone() -> None:
    watch = ZoneWatch()
    for number in range(20):
        assert not watch.hear(
            stamp_at(NOON + number * 37 * NS), NOON + 2 * HOUR + number * 2 * NS + 300 * NS, assumed_s=0
        )
    assert watch.zone_s is None


def test_lines_that_were_read_at_one_moment_count_once() -> None:
    watch = ZoneWatch()
    for _ in range(5):
        assert not watch.hear(stamp_at(NOON + 8 * HOUR), NOON, assumed_s=0)
    assert watch.agreeing == 1


def test_the_zone_of_the_host_stays_believed_and_comes_back() -> None:
    watch = ZoneWatch()

    def three(zone_h: int, day: int) -> list[bool]:
        times = [NOON + day * DAY + number * 60 * NS for number in range(3)]
        return [watch.hear(stamp_at(at + zone_h * HOUR), at, assumed_s=7200) for at in times]

    assert three(2, 0) == [False] * 3
    assert (three(0, 1), watch.zone_s) == ([False, False, True], 0)
    assert (three(2, 2), watch.zone_s) == ([False, False, True], None)


@pytest.mark.parametrize(("stated", "zone_h"), [(False, 0), (True, 8)])
def test_a_container_in_another_zone_than_its_host_is_noticed_unless_somebody_states_the_zone(
    stated: bool, zone_h: int
) -> None:
    times = [NOON + number * 60 * NS for number in range(5)]
    lines = [Moment(at, 0, 0).local(f"[%Y-%m-%d %H:%M:%S] {XID.format(pid=number)}") for number, at in enumerate(times)]
    events = read(lines, Dating(zone_s=28_800, zone_is_stated=stated), read_ns=times)
    assert [event.aligned_time_unix_nano for event in events[2:]] == [at - zone_h * HOUR for at in times[2:]]
    assert {("zone" in event.inferred) for event in events} == {not stated}


# --- the boot clock ---------------------------------------------------------------------------------------------------


def boot_of(files: Mapping[str, Iterable[str]], name: str = "dmesg-kern") -> BootReading | None:
    return infer(samples(files), zone_s=0)[name].boot


BOOTED = ns(2026, 8, 10, 0, 0, 5)
BARE = "[56701.234567] NVRM: loading the open kernel module"


@pytest.mark.parametrize(
    ("line", "bound_ns"),
    [
        ("Aug 10 15:45:06 gx-01 kernel: [56701.234567] x", NS),
        ("2026-08-10T15:45:06.234567+00:00 gx-01 kernel: [56701.234567] y", 2_000),
        ("2026-08-10T15:45:06.234567+00:00 gx-01 kernel: NVRM: loading the open kernel module", 2_000),
        ("[Mon Aug 10 15:45:06 2026] NVRM: loading the open kernel module", NS + COMPUTED_NS),
        ("[56701.234567] audit: type=1400 audit(1786376706.234:77): apparmor=\"STATUS\"", 1_000_000),
        ("[    1.500000] rtc_cmos 00:04: setting system clock to 2026-08-10T00:00:06 UTC (1786320006)", 61 * NS),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["dmesg-kern", "other-kern"])
def test_the_boot_clock_is_placed_by_a_line_that_shows_both_clocks(line: str, bound_ns: int, where: str) -> None:
    files = {"dmesg-kern": [BARE], "year": ["[2026-08-10 12:00:00] x"]}
    files.setdefault(where, []).append(line)
    reading = boot_of(files)
    if where == "dmesg-kern" and "NVRM" in line:
        # Said twice in one file, it may be two lines.
        assert reading is None
        return
    assert reading is not None
    assert abs(reading.wall_ns - reading.boot_ns - BOOTED) <= reading.bound_ns
    assert reading.bound_ns <= bound_ns
    (event,) = read([f"[56800.000001] {XID.format(pid=1)}"], Dating(boot=reading))
    assert event.aligned_time_unix_nano is not None
    assert abs(event.aligned_time_unix_nano - BOOTED - 56_800 * NS) <= reading.bound_ns + 10_000_000 + 1_000
    assert (event.clock_id, event.inferred, event.quality) == ("gx-01/wall", ["boot"], "holdover")
    assert event.kernel is not None
    assert (event.kernel.raw_ns, event.kernel.resolution_ns) == (56_800_000_001_000, 1_000)


def test_the_bound_is_the_scatter_of_what_shows_both_clocks() -> None:
    lines = [
        f"2026-08-10T15:45:{second:02}.000000+00:00 gx-01 kernel: [{56_701 + second - 6}.{late}00000] x"
        for second, late in ((6, 0), (7, 3), (8, 1), (9, 0))
    ]
    reading = boot_of({"dmesg-kern": [BARE], "other-kern": lines})
    assert reading is not None
    assert (reading.boot_ns, reading.wall_ns // NS) == (56_704 * NS, ns(2026, 8, 10, 15, 45, 9) // NS)
    assert 290_000_000 <= reading.bound_ns <= 310_000_000


def test_lines_from_before_the_log_was_started_do_not_count() -> None:
    late = [f"2026-08-10T00:01:00.000000+00:00 gx-01 kernel: [    {n}.000000] early {n}" for n in range(3)]
    good = [f"2026-08-10T0{n}:00:05.000000+00:00 gx-01 kernel: [{n * 3600}.000000] later {n}" for n in range(1, 6)]
    reading = boot_of({"dmesg-kern": [BARE], "other-kern": [*late, *good]})
    assert reading is not None
    assert abs(reading.wall_ns - reading.boot_ns - BOOTED) <= reading.bound_ns < NS


def test_two_boots_beside_a_kernel_log_place_none_unless_a_line_is_shared() -> None:
    boots = [
        "2026-08-10T15:45:06.234567+00:00 gx-01 kernel: [56701.234567] first boot of two",
        "2026-08-11T15:45:06.234567+00:00 gx-01 kernel: [  701.234567] second boot of two",
    ]
    assert boot_of({"dmesg-kern": [BARE], "other-kern": boots}) is None
    reading = boot_of({"dmesg-kern": [BARE, "[  701.234567] second boot of two"], "other-kern": boots})
    assert reading is not None
    assert reading.wall_ns - reading.boot_ns == pytest.approx(ns(2026, 8, 11, 15, 33, 25), abs=2_000)


def test_without_a_line_that_shows_both_clocks_the_stamps_stay_on_the_clock_of_their_boot() -> None:
    assert boot_of({"dmesg-kern": [BARE], "rank0.log": [LOCAL]}) is None
    (event,) = read([f"[56800.000001] {XID.format(pid=1)}"], Dating())
    assert (event.clock_id, event.raw_ns) == ("gx-01/file/kernel", 56_800_000_001_000)
    assert (event.aligned_time_unix_nano, event.quality, event.inferred) == (None, "none", [])


def test_a_syslog_line_keeps_the_stamp_of_the_kernel_and_names_its_boot() -> None:
    lines = [
        f"Aug 10 15:45:06 gx-01 kernel: [56701.234567] {XID.format(pid=1)}",
        f"Aug 10 15:45:06 gx-01 kernel: [56701.235000] {XID.format(pid=2)}",
        f"Aug 10 15:46:06 gx-01 kernel: [    9.500000] {XID.format(pid=3)}",
    ]
    first, second, other = read(lines, Dating(year=2026, zone_is_stated=True))
    assert first.kernel is not None
    assert second.kernel is not None
    assert other.kernel is not None
    assert (first.clock_id, first.raw_ns) == ("gx-01/wall", ns(2026, 8, 10, 15, 45, 6))
    assert (first.kernel.clock_id, first.kernel.raw_ns) == ("gx-01/2026-08-10T00:00Z/kernel", 56_701_234_567_000)
    assert second.kernel.clock_id == first.kernel.clock_id
    assert other.kernel.clock_id == "gx-01/2026-08-10T15:45Z/kernel"


# --- times in the middle of a line ------------------------------------------------------------------------------------


def test_a_line_that_says_when_it_was_written_in_its_middle_has_that_time() -> None:
    line = "slurmstepd: error: *** STEP 42.0 ON gx-02 CANCELLED AT 2026-08-10T15:36:05 DUE TO TIME LIMIT ***"
    (event,) = read([line], Dating(zone_s=7200), kind="application")
    assert (event.clock_id, event.raw_ns) == ("gx-02/wall", ns(2026, 8, 10, 13, 36, 5))
    assert (event.resolution_ns, event.inferred) == (NS, ["zone"])


@pytest.mark.parametrize("text", ["", "noon", "2026", "step 3", "26-08-10T15:36:05", "2026-13-10T15:36:05"])
def test_what_is_no_iso_time_is_none(text: str) -> None:
    assert iso_stamp(text) is None


def test_the_clock_of_a_bmc_is_its_own_and_is_trusted_little() -> None:
    (event,) = read([f"1a | 08/10/2026 | 15:36:05 | {XID.format(pid=1)}"], Dating(other_zones_s=(7200,)))
    at = ns(2026, 8, 10, 15, 36, 5)
    assert (event.clock_id, event.raw_ns, event.inferred) == ("gx-01/bmc", at, ["zone"])
    assert (event.lo_unix_nano, event.hi_unix_nano) == (at - 2 * HOUR - BMC_BOUND_NS, at + NS + BMC_BOUND_NS)


# --- attributes -------------------------------------------------------------------------------------------------------


boots = st.builds(
    BootReading,
    boot_ns=st.integers(0, 10**17),
    wall_ns=st.integers(10**18, 3 * 10**18),
    bound_ns=st.integers(0, 10**12),
)
datings = st.builds(
    Dating, year=st.none(), near_ns=st.one_of(st.none(), st.integers(10**9, 2 * 10**9).map(lambda s: s * NS)),
    spread_ns=st.integers(0, 10**6).map(lambda s: s * NS), zone_s=zones_s, zone_is_stated=st.booleans(),
    other_zones_s=st.lists(zones_s, max_size=3).map(tuple), boot=st.one_of(st.none(), boots),
)  # fmt: skip


@given(datings, st.one_of(st.none(), st.integers(1970, 2100)))
def test_a_dating_comes_back_from_its_attributes(dating: Dating, year: int | None) -> None:
    dating = msgspec.structs.replace(dating, year=year)
    assert told(attributes_of(dating)) == (dating, [])


ODD = [
    "", "0", "9" * 9, "9" * 11, "9" * 19, "9" * 30, "-1", "x", "²", "+99:99", "+14:00 -14:00 x", "0 0 0",
    f"{'9' * 18} {'9' * 19} {'9' * 15}", f"0 {T0} 0", f"{'9' * 18} {T0} {'9' * 15}",
]  # fmt: skip
TOLD = ["time.year", "time.near", "time.spread", "time.boot", "time.zone", "time.zones"]


@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(ODD) for name in TOLD}))
def test_no_attributes_make_a_time_that_cannot_be_sent(attributes: dict[str, str]) -> None:
    dating, _ = told(attributes)
    lines = ["Aug 10 15:36:05 gx-01 kernel: x", "15:36:05 x", "[56701.234567] x"]
    for line in lines:
        for event in read([line.replace("x", XID.format(pid=1))], dating):
            assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


@pytest.mark.parametrize(
    ("name", "text"),
    [("time.year", "last"), ("time.near", "-1"), ("time.boot", "1 2"), ("time.boot", "1 2 x"), ("time.spread", "1e9")],
)
def test_an_attribute_that_is_no_number_is_said(name: str, text: str) -> None:
    dating, wrong = told({name: text})
    assert dating == Dating()
    assert wrong == [f"{name} = {text!r} is no number"]
