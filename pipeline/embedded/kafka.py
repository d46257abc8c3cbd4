"""The real Apache Kafka broker (KRaft, one node, loopback only) in the data folder."""

import base64
import logging
import os
import shutil
import socket
import struct
import subprocess
import time
import uuid
from pathlib import Path

from pipeline.embedded.datadir import private_folder
from pipeline.embedded.errors import EmbeddedError, MissingProgramError, PartFailedError
from pipeline.embedded.kafka_jars import jars_for
from pipeline.embedded.part import Part
from pipeline.embedded.ports import LOOPBACK, choose_port, free_port, read_last_port
from pipeline.embedded.processes import POLL_S

logger = logging.getLogger(__name__)

LOG4J = Path(__file__).with_name("kafka_log4j2.xml")
# Measured on two cores: C1 only and the serial collector answer after 1.4 s, the defaults after 2 to 3 s.
FAST_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
HEAP = "-Xmx512m"
PORT_TRIES = 3
METADATA_KEY, METADATA_VERSION = 3, 7


class KafkaBroker:
    """One broker on one folder. A restart of the same object keeps its port, so clients reconnect."""

    def __init__(self, data_dir: Path, jars_dir: Path | None = None, port: int | None = None) -> None:
        self._dir = data_dir.absolute() / "kafka"
        self._jars_dir = jars_dir.absolute() if jars_dir is not None else None
        self._asked_port = port
        self._port: int | None = None
        self._part = Part(name="the Kafka broker", pid_file=self._dir / "broker.pid", log_file=self._dir / "broker.log")

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None when it does not run."""
        return self._part.pid

    @property
    def running(self) -> bool:
        """Tell whether the broker's process is alive."""
        return self._part.pid is not None

    @property
    def bootstrap(self) -> str:
        """The address clients use, "127.0.0.1:PORT"; known once the broker was started."""
        if self._port is None:
            raise PartFailedError("the Kafka broker was not started yet, so it has no address")
        return f"{LOOPBACK}:{self._port}"

    def start(self, timeout_s: float = 60.0) -> str:
        """Start the broker, wait until it serves requests, and return its bootstrap address.

        Raises:
            EmbeddedError: java or Maven is missing, the port is taken, the folder is held, or the broker died.

        """
        if self.pid is not None:
            return self.bootstrap
        if "," in str(self._dir):
            raise EmbeddedError(f"{self._dir}: Kafka cannot use a path with a comma; choose another data folder")
        java = find_java()
        private_folder(self._dir)
        jars = jars_for(kafka_dir=self._dir, jars_dir=self._jars_dir)
        self._part.end_stale()
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                return self._start_once(java, jars, timeout_s)
            except PartFailedError:
                if not tries_left or not self._lost_its_port():
                    raise
                logger.warning("another program took the broker's port first; trying another one")
        raise AssertionError("unreachable: the last try returns or raises")

    def stop(self) -> None:
        """Stop the broker cleanly; the data stay for the next start."""
        self._part.stop()

    def kill(self) -> None:
        """Kill -9 the broker, as a crash would."""
        self._part.kill()

    def _start_once(self, java: str, jars: Path, timeout_s: float) -> str:
        last_used = self._port or read_last_port(self._dir / "port")
        self._port = choose_port(name="the Kafka broker", asked=self._asked_port, last_used=last_used)
        properties = self._dir / "server.properties"
        properties.write_text(server_properties(self._port, free_port(), self._dir / "data"), encoding="utf-8")
        command = [java, HEAP, *FAST_START, f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"]
        command += [f"-Drootrank.log.dir={self._dir}", "-cp", f"{jars}/*"]
        self._format_once(command, properties)
        self._part.start([*command, "kafka.Kafka", str(properties)], env=java_environment())
        self._wait_ready(timeout_s)
        (self._dir / "port").write_text(str(self._port), encoding="ascii")
        return self.bootstrap

    def _format_once(self, command: list[str], properties: Path) -> None:
        """Format the storage before the first start; a format cut short is done again from nothing."""
        done = self._dir / "formatted"
        if done.exists():
            return
        shutil.rmtree(self._dir / "data", ignore_errors=True)
        command = [*command, "kafka.tools.StorageTool", "format", f"--cluster-id={new_cluster_id()}"]
        result = subprocess.run(
            [*command, "-c", str(properties)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=120,
        )
        if result.returncode != 0:
            raise PartFailedError(
                "the Kafka storage could not be formatted (a JDK older than 17 cannot run Kafka 4); java said:\n"
                + (result.stdout + result.stderr).strip()[-2000:]
            )
        done.touch()

    def _wait_ready(self, timeout_s: float) -> None:
        assert self._port is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._part.require_running()
            if answers_requests(self._port):
                return
            time.sleep(POLL_S)
        raise self._part.give_up(timeout_s)

    def _lost_its_port(self) -> bool:
        return self._asked_port is None and "already in use" in self._part.log_tail()


def find_java() -> str:
    """Return the java to run, from JAVA_HOME or PATH.

    Raises:
        MissingProgramError: there is none.

    """
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")
    if java is None:
        raise MissingProgramError(
            "`java` is not installed, and the Kafka broker runs on it: install a JDK or JRE 17 or newer "
            "(Debian and Ubuntu: apt install openjdk-17-jre-headless), or set KAFKA_BOOTSTRAP to a Kafka you have"
        )
    return java


def java_environment() -> dict[str, str]:
    """Return our environment with a locale in which java can open any file name."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def property_value(text: str) -> str:
    """Return a text as a value of a Java properties file, which is Latin-1 with escapes."""
    units = text.encode("utf-16-be")
    codes = [units[index] << 8 | units[index + 1] for index in range(0, len(units), 2)]
    return "".join(chr(code) if 32 < code < 127 and code != 92 else f"\\u{code:04x}" for code in codes)


def answers_requests(port: int) -> bool:
    """Tell whether the broker has joined its cluster: a Metadata request names at least one broker.

    Asked in bytes, because a broker that listens may still be without brokers for seconds, and a client library
    would be imported, and its warnings silenced, for this one question.
    """
    body = struct.pack(">hhih8sib", METADATA_KEY, METADATA_VERSION, 1, 8, b"rootrank", 0, 0)
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as answer:
                # size, correlation id, throttle time in ms, number of brokers: four 32 bit integers
                head = answer.read(16)
    except OSError:
        return False
    return len(head) == 16 and struct.unpack(">iiii", head)[3] > 0


def new_cluster_id() -> str:
    """Return a Kafka cluster id (base64 of a UUID) that no command line takes for an option."""
    return "r" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii")[1:22]


def server_properties(port: int, controller_port: int, log_dir: Path) -> str:
    """Return the broker's configuration: one node, both roles, loopback only, topics made on purpose only."""
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{LOOPBACK}:{controller_port}
listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners=PLAINTEXT://{LOOPBACK}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={property_value(str(log_dir))}
auto.create.topics.enable=false
message.max.bytes=16777216
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# A broker killed -9 may register again only when its old session is over: the default 9 s would be the restart time.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# The log cleaner's buffer is taken from the heap at start (128 MB by default).
log.cleaner.dedupe.buffer.size=16777216
"""
