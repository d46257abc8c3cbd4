"""The whole pipeline on real parts, as tests drive it: services as processes, topics read from the outside."""

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pipeline.diagnose import diagnose
from pipeline.folder import plan
from pipeline.kafka_client import KafkaClient
from pipeline.replay import Replay, Settings
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from schemas.codec import decode
from schemas.records import DELIVERY_FIELDS, Incident
from schemas.vocabulary import STANDING
from tests.polling import until


class Process:
    """One `rootrank` process."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM and the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no clean stop within {timeout_s} s; log: {self.log.read_text()[-2000:]}") from None


class Fleet:
    """Worker and store on a broker and an engine that somebody else owns."""

    def __init__(self, folder: Path, bootstrap: str, clickhouse_url: str, group: str = "rootrank") -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.clickhouse_url = clickhouse_url
        self.group = group
        self._count = 0
        self.workers: list[Process] = []
        self.stores: list[Process] = []

    def _log(self, name: str) -> Path:
        self._count += 1
        return self.folder / f"{name}-{self._count}.log"

    def add_worker(self) -> Process:
        """Start one more worker."""
        worker = Process(self._log("worker"), "worker", "--kafka", self.bootstrap, "--group", self.group)
        self.workers.append(worker)
        return worker

    def add_store(self) -> Process:
        """Start the store."""
        store = Process(self._log("store"), "store", "--kafka", self.bootstrap, "--clickhouse-url", self.clickhouse_url)
        self.stores.append(store)
        return store

    def stop(self) -> None:
        """End every process."""
        for process in (*self.workers, *self.stores):
            process.stop()

    # --- what is in Kafka -----------------------------------------------------------------------------------------

    def values(self, topic: str) -> list[bytes]:
        """Every message of a topic."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, kafka_client=KafkaClient)
        try:
            # A busy broker may be slow to say it: a topic whose partitions are unknown is not an empty one.
            numbers = until(lambda: consumer.partitions_for_topic(topic), what=f"the partitions of {topic}")
            places = [TopicPartition(topic, number) for number in numbers]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            found = []
            while any(consumer.position(place) < ends[place] for place in places):
                for messages in consumer.poll(timeout_ms=200).values():
                    found += [message.value for message in messages]
        finally:
            consumer.close()
        return found

    def records(self, topic: str) -> list[Any]:
        """Every record of a topic, decoded; what is not a record is left out."""
        decoded = []
        for value in self.values(topic):
            try:
                decoded.append(decode(topic, value))
            except ValueError:
                continue
        return decoded

    def revisions(self, cluster: str) -> list[Incident]:
        """Every published revision of a cluster's incidents."""
        return [i for i in self.records("incidents") if i.cluster == cluster]

    def final(self, cluster: str) -> list[bytes]:
        """The incidents of a cluster that stand, without delivery fields, in a fixed order."""
        last: dict[str, Incident] = {}
        for incident in self.revisions(cluster):
            last[incident.incident_id] = incident
        return contents(i for i in last.values() if i.state in STANDING)

    def wait_final(self, cluster: str, expected: list[bytes], timeout_s: float = 60.0) -> None:
        """Wait until the final incidents are the expected ones; shows the difference otherwise."""

        def equal() -> bool:
            return self.final(cluster) == expected

        try:
            until(equal, timeout_s=timeout_s)
        except AssertionError:
            assert self.final(cluster) == expected

    def send(self, topic: str, key: bytes, *values: bytes) -> None:
        """Put raw bytes on a topic."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap)
        for value in values:
            producer.send(topic, key=key, value=value).get(30)
        producer.close()

    # --- what is in ClickHouse ------------------------------------------------------------------------------------

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a statement."""
        store = Store(settings_from_url(self.clickhouse_url))
        try:
            return [tuple(row) for row in store.rows(statement)]
        finally:
            store.close()

    def assert_lines_once(self, cluster: str, lines: int) -> None:
        """The public view shows every line sent, once, as soon as it shows the last."""
        statement = f"SELECT count(), uniqExact(line_id) FROM raw_lines WHERE cluster = '{cluster}'"
        seen = until(
            lambda: [row for row in self.sql(statement) if row[0] >= lines], what=f"{lines} lines of {cluster}"
        )
        assert seen == [(lines, lines)]

    def assert_revisions_once(self, cluster: str) -> None:
        """No revision says what an earlier one said; none is said twice in different words; the store agrees."""
        by_incident: dict[str, dict[int, bytes]] = {}
        for incident in self.revisions(cluster):
            content = contents([incident])[0]
            known = by_incident.setdefault(incident.incident_id, {}).setdefault(incident.revision, content)
            assert known == content, f"revision {incident.revision} of {incident.incident_id} says two things"
        for revisions in by_incident.values():
            numbers = sorted(revisions)
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(set(revisions.values())) == len(revisions), "a revision says what an earlier one said"
        counts = f"""
            SELECT count(), uniqExact(incident_id, revision) FROM incident_revisions WHERE cluster = '{cluster}'
        """
        wanted = sum(len(revisions) for revisions in by_incident.values())
        until(lambda: self.sql(counts) == [(wanted, wanted)], what=f"{wanted} revisions of {cluster} in ClickHouse")


def contents(incidents: Iterable[Incident]) -> list[bytes]:
    """Incidents as canonical JSON without how they were delivered."""
    shapes = [msgspec.to_builtins(incident) for incident in incidents]
    return sorted(
        msgspec.json.encode({k: v for k, v in shape.items() if k not in DELIVERY_FIELDS}, order="sorted")
        for shape in shapes
    )


def expected(folder: Path) -> list[bytes]:
    """What the post-mortem of the folder says."""
    return contents(diagnose([folder]).incidents)


def line_count(folder: Path) -> int:
    """Lines of all logs of a folder."""
    return sum(len(p.read_bytes().splitlines()) for p in folder.rglob("*") if p.is_file() and p.name != "rootrank.toml")


def as_cluster(source: Path, target: Path, cluster: str) -> Path:
    """A copy of an incident's folder under another cluster name, so that tests do not meet on the topics."""
    shutil.copytree(source, target)
    manifest = target / "rootrank.toml"
    text = manifest.read_text(encoding="utf-8") if manifest.exists() else ""
    kept = [line for line in text.splitlines() if not line.startswith("cluster")]
    manifest.write_text("\n".join([f'cluster = "{cluster}"', *kept, ""]), encoding="utf-8")
    return target


class Playing:
    """A replay in the background."""

    def __init__(self, fleet: Fleet, folder: Path, *, speed: float | None = None, run_id: str = "") -> None:
        settings = Settings(
            bootstrap=fleet.bootstrap, work_dir=fleet.folder / "replay", run_id=run_id or folder.name, speed=speed
        )
        self.folder = settings.work_dir / settings.run_id
        self.replay = Replay(plan([folder]), settings)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.replay.run()
        except BaseException as error:
            self.error = error

    def wait_share(self, share: float) -> None:
        """Wait until this share of the folder's bytes was released."""
        status = self.replay.status
        until(lambda: self.error or status.bytes_released >= share * status.bytes_total, what=f"{share:.0%} played")

    def wait_done(self, timeout_s: float = 90.0) -> None:
        """Wait for the end; raises what the replay raised."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the replay does not end"
        if self.error is not None:
            raise self.error
