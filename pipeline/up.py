"""`rootrank up`: brings up everything on one machine and keeps it up.

Given services are used (KAFKA_BOOTSTRAP, CLICKHOUSE_URL); what is not given is started: the Apache broker, the
ClickHouse engine, then worker, store and feed as processes of their own.
"""

import asyncio
import http.client
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from aiokafka.errors import KafkaError
from msgspec import Struct

from pipeline.agents.app import WorkerConfig, changelog_topic
from pipeline.agents.broker import TopicError, changelog_plan, create_topics, wait_for_kafka
from pipeline.agents.stages import all_stages
from pipeline.agents.topics import topic_plans
from pipeline.core import keys
from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.datadir import private_folder
from pipeline.embedded.errors import EmbeddedError
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.part import Part
from pipeline.embedded.ports import free_port
from pipeline.kafka_access import access
from pipeline.store import migrations
from pipeline.store.clickhouse import EMBEDDED_READER, Store
from pipeline.store.errors import StoreUnreachableError
from pipeline.store.settings import settings_from_url
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from schemas.kafka_access import PLAIN

log = logging.getLogger(__name__)

KAFKA_PORT: Final = 9092
CLICKHOUSE_PORT: Final = 8123
WEB_PORT: Final = 8088
READY_S: Final = 60.0
CHECK_S: Final = 0.5
WAIT_S: Final = 1.0
# A process that lived shorter than this failed at its start; the pause before its next start doubles.
SHORT_LIFE_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0


class UpError(RuntimeError):
    """Something that does not come up; the text says what and what to do."""


class Settings(Struct, frozen=True, kw_only=True):
    """What to bring up. Empty addresses mean: start it here."""

    data: Path
    kafka: str = ""
    clickhouse_url: str = ""
    kafka_jars: Path | None = None
    workers: int = 1
    host: str = "127.0.0.1"
    port: int | None = None


class Addresses(Struct, frozen=True, kw_only=True):
    """Where everything answers. `reader_user`: who reads the tables; empty: whom the URL names."""

    kafka: str
    clickhouse_url: str
    web: str
    reader_user: str = ""

    @property
    def exports(self) -> str:
        """The line that lets the other commands find everything from another shell."""
        reader = f" CLICKHOUSE_READER_USER={self.reader_user}" if self.reader_user else ""
        return (
            f"export KAFKA_BOOTSTRAP={self.kafka} CLICKHOUSE_URL={self.clickhouse_url}{reader} ROOTRANK_URL={self.web}"
        )


class Startable(Protocol):
    """What can be started again."""

    @property
    def running(self) -> bool: ...
    def start(self) -> object: ...


class Service:
    """One process of ours, started again when it dies."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "pipeline", *arguments]
        self.log_file = folder / f"{name}.log"
        self._part = Part(name=name, pid_file=folder / f"{name}.pid", log_file=self.log_file)

    @property
    def pid(self) -> int | None:
        """The process id, None where none runs."""
        return self._part.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._part.pid is not None

    def start(self) -> None:
        """Start the process."""
        self._part.start(self._command)

    def stop(self) -> None:
        """End the process."""
        self._part.stop()


class Keeper:
    """Starts one part again whenever it died, with growing pauses where it dies at once or does not start."""

    def __init__(self, name: str, part: Startable, now_s: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._part = part
        self._now_s = now_s
        self._started_s = now_s()
        self._pause_s = FIRST_PAUSE_S
        self._next_s: float | None = None

    def keep_up(self) -> None:
        """Start the part where it is time to. A start that fails is said, and tried again later."""
        if self._part.running:
            return
        if self._next_s is None:
            lived_s = self._now_s() - self._started_s
            self._pause_s = FIRST_PAUSE_S if lived_s > SHORT_LIFE_S else min(self._pause_s * 2, MAX_PAUSE_S)
            self._next_s = self._now_s() + self._pause_s
            log.warning("%s does not run; starting it again in %.1f s", self._name, self._pause_s)
        if self._now_s() < self._next_s:
            return
        try:
            self._part.start()
        except (EmbeddedError, OSError, subprocess.SubprocessError) as error:
            log.warning("%s could not be started: %s", self._name, error)
        self._started_s, self._next_s = self._now_s(), None


class Stack:
    """Everything that runs under one `rootrank up`."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._broker: KafkaBroker | None = None
        self._clickhouse: ClickHouseServer | None = None
        self.services: list[Service] = []
        # Unique where several of us share one Kafka, the same after a restart.
        self._name = f"{socket.gethostname()}-{keys.digest(settings.data.resolve())}"
        self.addresses: Addresses | None = None

    @property
    def kafka_pid(self) -> int | None:
        """The broker's process id, None where it is not ours or does not run."""
        return self._broker.pid if self._broker else None

    @property
    def clickhouse_pid(self) -> int | None:
        """The engine's process id, None where it is not ours or does not run."""
        return self._clickhouse.pid if self._clickhouse else None

    def start(self) -> Addresses:
        """Bring everything up. Raises UpError and what the embedded parts raise; stops what was started."""
        try:
            kafka, clickhouse_url = self._start_kafka(), self._start_clickhouse()
            self._say("creating topics and tables …")
            asyncio.run(prepare_kafka(kafka))
            self._migrate(clickhouse_url)
            web = self._start_services(kafka, clickhouse_url)
        except BaseException:
            self.stop()
            raise
        reader = EMBEDDED_READER if self._clickhouse else ""
        self.addresses = Addresses(kafka=kafka, clickhouse_url=clickhouse_url, web=web, reader_user=reader)
        return self.addresses

    def run(self, stop: threading.Event) -> None:
        """Keep everything up until told to stop."""
        keepers = [Keeper(f"{service.name} (its log: {service.log_file})", service) for service in self.services]
        keepers += [
            Keeper(name, part)
            for name, part in (("Kafka", self._broker), ("ClickHouse", self._clickhouse))
            if part is not None
        ]
        while not stop.wait(CHECK_S):
            for keeper in keepers:
                keeper.keep_up()

    def stop(self) -> None:
        """End everything that was started, in the order of the data flow."""
        for service in self.services:
            service.stop()
        for part in (self._clickhouse, self._broker):
            if part is not None:
                part.stop()

    def _start_kafka(self) -> str:
        if self._settings.kafka:
            self._say(f"using Kafka at {self._settings.kafka}")
            return self._settings.kafka
        if access() != PLAIN:
            raise UpError(
                "KAFKA_SECURITY_PROTOCOL and its like are set, and the broker started here speaks PLAINTEXT on "
                "loopback: unset them, or name the broker they are for (--kafka, KAFKA_BOOTSTRAP)"
            )
        self._say("starting Kafka …")
        self._broker = KafkaBroker(self._settings.data, jars_dir=self._settings.kafka_jars, port=free_port(KAFKA_PORT))
        return self._broker.start()

    def _start_clickhouse(self) -> str:
        if self._settings.clickhouse_url:
            self._say("using ClickHouse as given")
            return self._settings.clickhouse_url
        self._say("starting ClickHouse …")
        self._clickhouse = ClickHouseServer(self._settings.data, port=free_port(CLICKHOUSE_PORT))
        return f"{self._clickhouse.start()}/rootrank"

    def _migrate(self, clickhouse_url: str) -> None:
        """Bring the tables up to date; a ClickHouse that is away is waited for and said once."""
        store, said = Store(settings_from_url(clickhouse_url)), False
        try:
            while True:
                try:
                    migrations.apply(store, migrations.load_migrations())
                except StoreUnreachableError as error:
                    if not said:
                        self._say(f"{error}; waiting for it")
                    said = True
                    time.sleep(WAIT_S)
                else:
                    return
        finally:
            store.close()

    def _start_services(self, kafka: str, clickhouse_url: str) -> str:
        self._say("starting worker, store and feed …")
        folder = self._settings.data / "services"
        private_folder(folder)
        port = self._settings.port or free_port(WEB_PORT)
        workers = [
            Service(f"worker-{n}", ["worker", "--kafka", kafka, "--instance", f"{self._name}-{n}"], folder)
            for n in range(1, self._settings.workers + 1)
        ]
        web = ["web", "--kafka", kafka, "--host", self._settings.host, "--port", str(port)]
        self.services = [
            *workers,
            Service("store", ["store", "--kafka", kafka, "--clickhouse-url", clickhouse_url], folder),
            Service("feed", web, folder),
        ]
        for service in self.services:
            service.start()
        wait_for_feed(self._settings.host, port)
        return f"http://{self._settings.host}:{port}"


async def prepare_kafka(bootstrap: str) -> None:
    """Create what topics are missing."""
    if not await wait_for_kafka(bootstrap, asyncio.Event(), access()):
        raise UpError(f"Kafka at {bootstrap} does not answer")
    config = WorkerConfig(bootstrap=bootstrap)
    plans = [*topic_plans(), *(changelog_plan(changelog_topic(config, s), s.partitions) for s in all_stages())]
    try:
        await create_topics(bootstrap, plans, replication=config.replication, access=access())
    except (TopicError, KafkaError) as error:
        raise UpError(f"Kafka at {bootstrap} does not take the topics: {error}") from None


def wait_for_feed(host: str, port: int) -> None:
    """Return once the feed answers. Raises UpError."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection(host, port, timeout=2)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise UpError(f"the feed does not answer on port {port}; see services/feed.log in the data folder")


def page_with_incidents(web: str) -> str:
    """The page's address: of what another run holds, where nothing is live."""
    try:
        listing = FeedClient(url=web).listing({"run": "live", "state": "all", "limit": "1"})
    except (FeedRefusedError, FeedUnreachableError):
        return web
    if listing.incidents or not listing.other_runs:
        return web
    return f"{web}/?run={'replay' if 'replay' in listing.other_runs else min(listing.other_runs)}"
