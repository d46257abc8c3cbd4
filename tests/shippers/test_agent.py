import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from schemas.records import ClockClaim, ClockReading, Progress, SourceProgress
from shippers.agent import Agent
from shippers.clock import Clock, HostClock
from shippers.config import BatchSettings, ClockSettings, Config, SourceSettings, SpoolSettings
from tests.shippers.fakes import SECOND_NS, FakeSink, append, eventually

STATIC = ClockReading(raw_ns=10, mono_ns=20, boottime_ns=30, wall_ns=40)


class Running:
    """An agent in a thread, with what it says."""

    def __init__(self, config: Config, sink: FakeSink, clock: Clock | None = None) -> None:
        self.said: list[str] = []
        self.result: bool | BaseException | None = None
        self.agent = Agent(config, sink, self.said.append, clock)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self.agent.run()
        except BaseException as error:
            self.result = error

    def join(self) -> bool | BaseException | None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.result


@contextmanager
def running(config: Config, sink: FakeSink, clock: Clock | None = None) -> Iterator[Running]:
    run = Running(config, sink, clock)
    try:
        yield run
    finally:
        run.agent.request_stop()
        run.join()


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


@pytest.fixture
def config(tmp_path: Path, log: Path) -> Config:
    return Config(
        cluster="c",
        reporter="n1",
        run_id="live",
        profile="none",
        start_at="beginning",
        batch=BatchSettings(linger_ms=5),
        spool=SpoolSettings(dir=str(tmp_path / "spool"), max_bytes=64 * 2**20),
        clock=ClockSettings(beacon=False),
        source=(SourceSettings(name="rank0.log", path=str(log), attributes={"rank": "0"}),),
    )


def replay(config: Config, tmp_path: Path, **changes: object) -> Config:
    clock = ClockSettings(static=STATIC, claim=ClockClaim(offset_ns=1, bound_ns=2, by="me"), boot_id="b1")
    return msgspec.structs.replace(
        config, run="replay", run_id="r1", clock=clock, end_file=str(tmp_path / "end"), **changes
    )


def covered(sink: FakeSink) -> Callable[[], Progress | None]:
    """The last progress once it says that all sources are at their end."""
    return lambda: next(
        (each for each in reversed(sink.progress()) if all(source.at_end for source in each.sources)), None
    )


@pytest.fixture
def indian_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("indian_host")
def test_lines_arrive_in_order_with_their_sources_attributes(config: Config, sink: FakeSink, log: Path) -> None:
    append(log, "one\ntwo\n")
    with running(config, sink):
        eventually(lambda: len(sink.bodies()) == 2, "two lines")
        append(log, "three\n")
        eventually(lambda: len(sink.bodies()) == 3, "three lines")
    batch = sink.batches()[0]

    assert sink.bodies() == ["one", "two", "three"]
    assert batch.source_attributes == {
        "rank0.log": {"kind": "application", "rank": "0", "time.zone": "+05:30", "time.inferred": "zone"}
    }
    assert sink.progress()[-1].sources[0].attributes["time.zone"] == "+05:30"
    assert (batch.cluster, batch.reporter, batch.run) == ("c", "n1", "live")
    assert batch.clock.raw_ns > 0
    assert [each.batch_seq for each in sink.batches()] == list(range(1, len(sink.batches()) + 1))


def test_progress_comes_after_the_batches_it_covers_and_goes_on_when_idle(
    config: Config, sink: FakeSink, log: Path
) -> None:
    append(log, "one\n")
    with running(config, sink):
        eventually(lambda: len([each for each in sink.progress() if each.sources[0].at_end]) >= 2, "two records")
    seen = 0
    for record in sink.records():
        if isinstance(record, Progress):
            assert record.last_batch_seq <= seen
            assert not record.ended
        else:
            seen = record.batch_seq
    last = sink.progress()[-1].sources[0]
    assert (last.source, last.state, last.at_end, last.attributes["rank"]) == ("rank0.log", "on", True, "0")
    assert last.read_through_unix_nano > 10**18


def test_while_the_sink_is_away_progress_claims_nothing_that_has_not_arrived(
    config: Config, sink: FakeSink, log: Path
) -> None:
    append(log, "one\n")
    sink.is_away = True
    with running(config, sink) as run:
        eventually(lambda: run.said, "it is said")
        append(log, "two\n")
        sink.is_away = False
        eventually(lambda: len(sink.bodies()) == 2, "both lines")
        eventually(covered(sink), "covering progress")
        assert [text.split(";")[0] for text in run.said] == ["the fake is away", "Kafka answers again"]

    assert sink.bodies() == ["one", "two"]


def test_a_restart_goes_on_where_the_last_run_ended(config: Config, sink: FakeSink, log: Path) -> None:
    append(log, "one\n")
    with running(config, sink):
        eventually(lambda: sink.bodies() == ["one"], "the first line")
    append(log, "two\n")
    with running(config, sink):
        eventually(lambda: len(sink.bodies()) >= 2, "the second line")

    assert sink.bodies() == ["one", "two"]
    assert [line.seq for batch in sink.batches() for line in batch.records] == [0, 1]
    assert len({batch.shipper_id for batch in sink.batches()}) == 1


def test_while_the_sink_is_away_a_stop_does_not_wait_for_it(config: Config, sink: FakeSink, log: Path) -> None:
    append(log, "one\n")
    sink.is_away = True
    with running(config, sink) as run:
        eventually(lambda: run.said, "it is said")
        asked_s = time.monotonic()
    assert time.monotonic() - asked_s < 1.5


def test_what_was_read_while_the_sink_was_away_is_sent_by_the_next_run(
    config: Config, sink: FakeSink, log: Path
) -> None:
    append(log, "one\n")
    sink.is_away = True
    with running(config, sink) as run:
        eventually(lambda: run.said, "it is said")
    assert run.result is False
    log.unlink()
    sink.is_away = False
    with running(config, sink):
        eventually(lambda: sink.bodies() == ["one"], "the line")


def test_a_replay_ends_by_itself_after_all_is_read_and_says_so_last(
    config: Config, sink: FakeSink, log: Path, tmp_path: Path
) -> None:
    append(log, "one\ntwo\ntorn")
    (tmp_path / "end").touch()
    run = Running(replay(config, tmp_path), sink)
    assert run.join() is True
    records = sink.records()
    last = records[-1]

    assert sink.bodies() == ["one", "two", "torn"]
    assert isinstance(last, Progress)
    assert last.ended
    assert last.last_batch_seq == sink.batches()[-1].batch_seq
    assert [each.ended for each in sink.progress()].count(True) == 1


def test_no_clock_of_this_host_enters_a_replay(config: Config, sink: FakeSink, log: Path, tmp_path: Path) -> None:
    append(log, "one\n")
    (tmp_path / "end").touch()
    Running(replay(config, tmp_path), sink).join()

    for record in sink.records():
        assert (record.clock, record.boot_id, record.machine_id) == (STATIC, "b1", None)
        assert record.clock_claim == ClockClaim(offset_ns=1, bound_ns=2, by="me")
    assert [line.observed_time_unix_nano for batch in sink.batches() for line in batch.records] == [0]
    assert [source.read_through_unix_nano for each in sink.progress() for source in each.sources].count(0) == len(
        sink.progress()
    )


@pytest.mark.usefixtures("indian_host")
def test_all_times_of_a_node_come_from_the_clock_that_the_agent_is_given(
    config: Config, sink: FakeSink, log: Path
) -> None:
    ahead_ns = 10**18
    append(log, "one\n")
    clock = HostClock("other-boot", gettime=lambda clock_id: time.clock_gettime_ns(clock_id) + ahead_ns)
    with running(config, sink, clock):
        eventually(covered(sink), "progress")
    now_ns = ahead_ns + time.time_ns()
    batch, progress = sink.batches()[0], sink.progress()[-1]
    walls = [
        batch.clock.wall_ns, batch.records[0].observed_time_unix_nano, progress.clock.wall_ns,
        progress.sources[0].read_through_unix_nano,
    ]  # fmt: skip

    assert all(now_ns - 60 * SECOND_NS < wall_ns < now_ns for wall_ns in walls)
    for reading in (batch.clock, progress.clock):
        assert min(reading.raw_ns, reading.mono_ns, reading.boottime_ns) > ahead_ns
    assert (batch.boot_id, progress.boot_id) == ("other-boot", "other-boot")


def test_the_claim_of_the_clock_is_in_every_record(config: Config, sink: FakeSink, log: Path) -> None:
    claim = ClockClaim(offset_ns=0, bound_ns=7, by="chrony")
    append(log, "one\n")
    with running(config, sink, HostClock("b", claim=claim)):
        eventually(covered(sink), "progress")

    assert all(record.clock_claim == claim for record in sink.records())
    assert sink.records()


class DatedClaims(HostClock):
    """Each claim says in its bound when it was made."""

    def claim(self) -> ClockClaim:
        return ClockClaim(offset_ns=0, bound_ns=self.raw_ns(), by="test")


def test_a_progress_record_claims_what_holds_when_it_is_sent(config: Config, sink: FakeSink, log: Path) -> None:
    append(log, "one\n")
    with running(config, sink, DatedClaims("b")):
        eventually(lambda: len(sink.progress()) > 2, "progress")

    for progress in sink.progress():
        assert progress.clock_claim is not None
        assert progress.clock_claim.bound_ns >= progress.clock.raw_ns


def test_the_zone_of_this_host_is_not_stated_where_the_settings_or_a_recording_speak(
    config: Config, sink: FakeSink, log: Path, tmp_path: Path
) -> None:
    append(log, "one\n")
    (tmp_path / "end").touch()
    utc = SourceSettings(name="rank0.log", path=str(log), attributes={"time.zone": "UTC"})
    kmsg = SourceSettings(name="kernel", kind="kernel", type="kmsg", path=str(log))
    live = msgspec.structs.replace(config, source=(utc, kmsg), end_file=str(tmp_path / "end"))
    recorded = replay(config, tmp_path, spool=SpoolSettings(dir=str(tmp_path / "other")))
    for each in (live, recorded):
        Running(each, sink).join()

    said = [item for batch in sink.batches() for item in batch.source_attributes.items()]
    assert [(batch.run, len(batch.source_attributes)) for batch in sink.batches()] == [("live", 2), ("replay", 1)]
    assert sorted((name, each.get("time.zone", "")) for name, each in said) == [
        ("kernel", ""),
        ("rank0.log", ""),
        ("rank0.log", "UTC"),
    ]
    assert {each.attributes.get("time.zone") for each in sink.progress()[-1].sources} == {None}


def test_a_file_name_that_is_not_utf_8_is_shipped_under_a_printable_one_and_resumed(
    config: Config, sink: FakeSink, tmp_path: Path
) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    odd, twin = Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.log")), folder / "bad\\xff.log"
    append(odd, "one\n")
    append(twin, "two\n")
    globbed = msgspec.structs.replace(config, source=(SourceSettings(path=str(folder / "*.log")),))
    with running(globbed, sink) as run:
        eventually(lambda: len(sink.bodies()) == 2, "both lines")
        eventually(covered(sink), "progress")
    assert run.result is True
    append(odd, "three\n")
    with running(globbed, sink):
        eventually(lambda: len(sink.bodies()) >= 3, "the line after the restart")
        odd.unlink()
        eventually(lambda: any("does not exist" in (each.reason or "") for each in latest(sink)), "its absence is said")

    found = [(line.source, line.body) for batch in sink.batches() for line in batch.records]
    assert sorted(found) == [("bad\\\\xff.log", "two"), ("bad\\xff.log", "one"), ("bad\\xff.log", "three")]


def latest(sink: FakeSink) -> list[SourceProgress]:
    progress = sink.progress()
    return progress[-1].sources if progress else []


def test_a_batch_that_kafka_never_takes_becomes_a_gap_and_its_neighbours_arrive(
    config: Config, sink: FakeSink, log: Path
) -> None:
    sink.refused.add(b"poison")
    append(log, "one\n")
    with running(config, sink):
        eventually(lambda: sink.bodies() == ["one"], "the first line")
        append(log, "poison\npoison\n")
        eventually(lambda: any(batch.gaps for batch in sink.batches()), "a gap marker")
        append(log, "two\n")
        eventually(lambda: len(sink.bodies()) == 2, "the neighbour")
    gaps = [gap for batch in sink.batches() for gap in batch.gaps]

    assert sink.bodies() == ["one", "two"]
    assert [(gap.source, gap.lost_lines) for gap in gaps] == [("rank0.log", 2)]


def test_a_full_disk_pauses_reading_says_so_once_and_loses_nothing(config: Config, sink: FakeSink, log: Path) -> None:
    append(log, "one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with running(config, sink) as run:
        eventually(lambda: sink.bodies() == ["one"], "the first line")
        lines = [f"line {number} " + "x" * 100 for number in range(500)]
        append(log, "\n".join(lines) + "\n")
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
        try:
            eventually(lambda: run.said, "it is said")
            eventually(lambda: sink.progress() and latest(sink)[0].state == "off", "progress says so")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        eventually(lambda: len(sink.bodies()) == 501, "all lines")

    assert sink.bodies() == ["one", *lines]
    assert len(run.said) == 2


def test_a_thousand_files_are_read_without_a_thread_each(config: Config, sink: FakeSink, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for number in range(1000):
        append(folder / f"rank{number}.log", f"hello of {number}\n")
    source = SourceSettings(name="train", path=str(folder / "*.log"))
    others = threading.active_count()
    with running(msgspec.structs.replace(config, source=(source,)), sink):
        eventually(lambda: len(sink.bodies()) == 1000, "all lines")
        append(folder / "rank7.log", "again\n")
        eventually(lambda: len(sink.bodies()) == 1001, "the new line")
        append(folder / "rank1000.log", "late\n")
        eventually(lambda: len(sink.bodies()) == 1002, "the line of a new file")
        eventually(lambda: sink.progress() and len(sink.progress()[-1].sources) == 1001, "progress of all files")
        assert threading.active_count() - others < 9

    assert len({line.source for batch in sink.batches() for line in batch.records}) == 1001
    assert sink.batches()[-1].records[-1].source == "train/rank1000.log"


def test_a_failure_while_delivering_is_not_silent(config: Config, log: Path) -> None:
    class Broken(FakeSink):
        def send(self, value: bytes) -> object:  # type: ignore[override]
            raise RuntimeError("broken")

    append(log, "one\n")
    run = Running(config, Broken())

    assert isinstance(run.join(), RuntimeError)
