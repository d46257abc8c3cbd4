import threading
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.records import ClockClaim, ClockReading
from shippers.agent import Agent
from shippers.check import KafkaState, beacon_topic, clock_problems, clock_state_of, inspect
from shippers.clock import HostClock, make_clock
from shippers.config import ClockSettings, Config, JournalSettings, KafkaSettings, SourceSettings, SpoolSettings
from tests.shippers.fakes import append, eventually
from tests.shippers.test_sink import make_topic
from tests.shippers.test_time_daemon import SYNCHRONISED, chronyc

READING = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "a.log").touch()
    return Config(
        reporter="n", profile="none", kafka=KafkaSettings(bootstrap="127.0.0.1:1"),
        spool=SpoolSettings(dir=str(tmp_path / "spool")),
        source=(SourceSettings(name="a", path=str(tmp_path / "a.log")),),
    )  # fmt: skip


def with_clock(config: Config, **clock: Any) -> Config:
    return Config(
        reporter="n",
        profile="none",
        kafka=config.kafka,
        spool=config.spool,
        source=config.source,
        clock=ClockSettings(**clock),
    )


def test_chrony_is_named_with_its_bound_and_its_server(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronyc(tmp_path, f'echo "{SYNCHRONISED.strip()}"', monkeypatch)
    clock = clock_state_of(config, HostClock("b"))

    assert (clock.source, clock.stratum, clock.server, clock.is_synchronised) == ("chrony", 4, "169.254.169.123", True)
    assert clock.bound_ns == pytest.approx(302_000, abs=1)
    assert clock_problems(clock, is_measured=False) == []


def test_a_claim_of_the_settings_is_what_is_said_of_the_clock(config: Config) -> None:
    config = with_clock(config, claim=ClockClaim(offset_ns=0, bound_ns=5, by="me"))
    clock = clock_state_of(config, make_clock(config))

    assert (clock.source, clock.bound_ns) == ("settings", 5)


def test_a_wall_clock_that_nobody_bounds_is_a_problem_unless_beacons_measure_it(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no chronyc
    monkeypatch.setattr("shippers.check.ask_kernel", lambda: None)
    clock = clock_state_of(config, HostClock("b"))

    assert (clock.source, clock.bound_ns, clock.is_synchronised) == ("none", None, None)
    assert clock_problems(clock, is_measured=True) == []
    (problem,) = clock_problems(clock, is_measured=False)
    assert problem.what == "the wall clock has an error that nothing bounds, and no beacons measure it"
    assert "start chrony" in problem.do


def test_clocks_that_take_a_millisecond_to_read_are_a_problem(config: Config) -> None:
    now_ns = 0

    def slow(_clock_id: int) -> int:
        nonlocal now_ns
        now_ns += 400_000
        return now_ns

    problems = clock_problems(clock_state_of(config, HostClock("b", gettime=slow)), is_measured=True)

    assert "reading the clocks takes 1.6 ms" in problems[0].what


def test_recorded_clocks_are_no_problem(config: Config) -> None:
    config = with_clock(config, static=READING)
    clock = clock_state_of(config, make_clock(config))

    assert (clock.is_static, clock.source, clock_problems(clock, is_measured=False)) == (True, "none", [])


def test_marks_that_cannot_be_written_are_a_problem(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shippers.check.KMSG", Path("/nonexistent/kmsg"))
    report = inspect(with_clock(config, kmsg_marker=True))

    assert any("kmsg_marker is set and /nonexistent/kmsg cannot be written" in each.what for each in report.problems)


@pytest.mark.parametrize(
    ("brokers", "stamp", "expected"),
    [
        (1, "LogAppendTime", True),
        (1, "CreateTime", False),
        (1, None, True),
        (0, "LogAppendTime", False),
        (None, None, False),
    ],
)
def test_clocks_are_measured_where_a_broker_stamps(brokers: int | None, stamp: str | None, expected: bool) -> None:
    state = KafkaState(bootstrap="b", answers=True, beacon_brokers=brokers, beacon_timestamp_type=stamp)

    assert state.measures_clocks is expected


@pytest.mark.kafka
@pytest.mark.parametrize("stamp", ["LogAppendTime", "CreateTime"])
def test_who_stamps_a_topic_and_how_many_brokers_lead_it_is_read_from_kafka(kafka_broker: Any, stamp: str) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(kafka_broker.bootstrap, topic, **{"message.timestamp.type": stamp})
    settings = KafkaSettings(bootstrap=kafka_broker.bootstrap)

    assert eventually(lambda: (found := beacon_topic(settings, topic))[1] and found, "a leader") == (stamp, 1)


@pytest.mark.kafka
def test_of_a_topic_that_is_not_there_nothing_is_known(kafka_broker: Any) -> None:
    assert beacon_topic(KafkaSettings(bootstrap=kafka_broker.bootstrap), "no-such-topic") in [(None, None), (None, 0)]


def test_what_a_running_shipper_has_read_is_not_to_read(config: Config, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\ntwo\n")
    agent = Agent(config)  # holds the spool; Kafka is away
    running = threading.Thread(target=agent.run)
    running.start()
    try:
        eventually(lambda: _to_read(config) == 0, "the shipper has read all")
        append(tmp_path / "a.log", "")
    finally:
        agent.request_stop()
        running.join()
    append(tmp_path / "a.log", "three\n")
    assert _to_read(config) == len("three\n")


def test_a_spool_of_a_later_version_is_a_problem_with_what_to_do(config: Config) -> None:
    spool = Path(config.spool.dir)
    spool.mkdir(parents=True, exist_ok=True)
    (spool / "000000000001.spool").write_bytes(b"RRS2 what nobody knows yet")

    (problem,) = (each for each in inspect(config).problems if "spool" in each.what)

    assert "written by a later rootrank-shipper" in problem.what
    assert "run that version" in problem.do


def test_without_a_spool_the_whole_file_is_to_read(config: Config, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\ntwo\n")
    assert _to_read(config) == len("one\ntwo\n")
    assert not (tmp_path / "spool").exists()


def _to_read(config: Config) -> int | None:
    (source,) = (each for each in inspect(config).sources if each.source == "a")
    return source.backlog_bytes


def test_a_node_whose_kernels_log_nothing_reads_has_a_problem(config: Config, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    replace = msgspec.structs.replace
    journal = JournalSettings(directory=str(tmp_path / "journal"))
    report = inspect(replace(config, sources={"journal_kernel": True, "journal": True}, journal=journal))

    assert report.kernel_log == "missing"
    assert "the kernel's log is not read, so no Xid is seen" in [each.what for each in report.problems]
    for each in report.sources:
        if each.source.startswith("journal"):
            assert (each.state, each.at_end) == ("off", False)
            assert "no journal files in" in (each.reason or "")
    meant = inspect(config)
    assert (meant.kernel_log, [each for each in meant.problems if "Xid" in each.what]) == ("off", [])
