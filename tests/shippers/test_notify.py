"""What systemd hears, over real datagram sockets."""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shippers.agent import Agent
from shippers.config import Config, KafkaSettings, SourceSettings, SpoolSettings
from shippers.notify import Notifier, notifier
from shippers.pieces import Moment
from shippers.probed import ProbedSource
from tests.shippers.fakes import FakeSink, append, eventually


class Systemd:
    """A socket as systemd's; keeps what it hears."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(20)

    def hear(self) -> str:
        return self._socket.recv(4096).decode()

    def hear_of(self, what: str) -> str:
        """The next that it hears, where it speaks of that."""
        said = self.hear()
        return said if what in said else ""

    def hears_nothing(self, within_s: float) -> bool:
        self._socket.settimeout(within_s)
        try:
            self.hear()
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(20)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    listening = Systemd(str(tmp_path / "notify") if request.param == "path" else f"@rootrank-{uuid.uuid4().hex}")
    yield listening
    listening.close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    append(tmp_path / "a.log", "one\n")
    return Config(
        reporter="n", kafka=KafkaSettings(bootstrap="127.0.0.1:1"), spool=SpoolSettings(dir=str(tmp_path / "spool")),
        source=(SourceSettings(name="a", path=str(tmp_path / "a.log")),), profile="none",
    )  # fmt: skip


class Running:
    """An agent at work in a thread."""

    def __init__(
        self, config: Config, notifier: Notifier, sink: FakeSink | None = None,
        around: Callable[[Any], Any] = lambda source: source,
    ) -> None:  # fmt: skip
        self.agent = Agent(config, sink or FakeSink(), lambda text: None, notifier=notifier)
        self.agent.wrap_sources(around)
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def stop(self) -> None:
        self.agent.request_stop()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_it_is_ready_after_the_first_pass_beats_and_says_when_it_stops(config: Config, systemd: Systemd) -> None:
    running = Running(config, Notifier(systemd.address, watchdog_s=0.2))
    try:
        heard = [systemd.hear() for _ in range(3)]
    finally:
        running.stop()

    assert heard[0].startswith("READY=1\nWATCHDOG=1\nSTATUS=")
    assert [each.split("\n")[0] for each in heard[1:]] == ["WATCHDOG=1", "WATCHDOG=1"]
    eventually(lambda: systemd.hear() == "STOPPING=1", "the end is told")


def test_a_wait_for_kafka_goes_on_beating_and_shows_in_the_status(config: Config, systemd: Systemd) -> None:
    sink = FakeSink()
    sink.is_away = True
    running = Running(config, Notifier(systemd.address, watchdog_s=0.2), sink)
    try:
        heard = eventually(lambda: systemd.hear_of("Kafka"), "Kafka is away")
        after = [systemd.hear() for _ in range(5)]
    finally:
        running.stop()

    assert "STATUS=Kafka does not answer, " in heard
    assert all("WATCHDOG=1" in each for each in after)


class Hanging:
    """A probe that waits for a file system that does not answer, where nobody expected it to."""

    name = "hanging"
    every_s = 0.05
    may_hang = False

    def __init__(self, hold: threading.Event, entered: threading.Event) -> None:
        self._hold = hold
        self._entered = entered
        self._looks = 0

    def open(self, memo: str) -> None:
        """Nothing is opened."""

    def look(self, moment: Moment) -> Sequence[str]:
        self._looks += 1
        if self._looks > 1:
            self._entered.set()
            self._hold.wait(20)
        return []

    def memo(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""


def test_a_pass_that_hangs_beats_no_more(config: Config, systemd: Systemd) -> None:
    hold, entered = threading.Event(), threading.Event()
    one = msgspec.structs.replace(config, source=(), profile="none", sources={"self_test": True})
    running = Running(
        one, Notifier(systemd.address, watchdog_s=0.1), around=lambda source: ProbedSource(Hanging(hold, entered))
    )
    try:
        assert systemd.hear().startswith("READY=1")
        assert entered.wait(20)
        eventually(lambda: systemd.hears_nothing(0.5), "it is silent")
        hold.set()
        assert "WATCHDOG=1" in systemd.hear()
    finally:
        hold.set()
        running.stop()


def test_without_systemd_nothing_is_told_and_who_does_not_listen_is_no_error(tmp_path: Path) -> None:
    for silent in (notifier({}), Notifier(str(tmp_path / "nobody"))):
        silent.beat(lambda: "fine")
        silent.stopping()


def test_it_speaks_to_the_socket_of_the_environment_as_often_as_the_watchdog_wants(systemd: Systemd) -> None:
    told = notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "40000", "WATCHDOG_PID": str(os.getpid())})
    for _ in range(2):
        told.beat(lambda: "two\nlines")

    assert systemd.hear() == "READY=1\nWATCHDOG=1\nSTATUS=two lines"
    assert systemd.hears_nothing(0.05)
    told.beat(lambda: "later")
    assert systemd.hear() == "WATCHDOG=1\nSTATUS=later"


def test_a_watchdog_of_another_process_sets_no_pace(systemd: Systemd) -> None:
    told = notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    told.beat(lambda: "once")
    assert "READY=1" in systemd.hear()
    assert systemd.hears_nothing(0.05)
    told.beat(lambda: "twice")
    assert systemd.hears_nothing(0.05)
