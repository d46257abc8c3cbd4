"""A real broker, worker processes that can be killed, and what they must have produced in the end."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pipeline.embedded.kafka import KafkaBroker

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def eventually(condition: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    """The first true value of `condition`, or a failure that says what did not happen."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.05)
    return found


def log_ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """The end offset of each partition; a broker that is busy may not lead a new topic yet."""
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions

    def ends() -> dict[int, int] | None:
        try:
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return None

    found: dict[int, int] = eventually(ends, f"the broker leads {topic}", within_s=20.0)
    return found


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """All messages of a topic up to its end now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "fetch.wait.max.ms": 20})  # fmt: skip
    found: list[Message] = []
    missing = log_ends(consumer, topic)
    consumer.assign([TopicPartition(topic, p, 0) for p, end in missing.items() if end])
    while any(missing.values()):
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if offset + 1 >= missing[partition]:
                missing[partition] = 0
            found.append(message)
    consumer.close()
    return found


class Stage:
    """Worker processes over one set of topics, and the view from outside."""

    def __init__(
        self,
        broker: KafkaBroker,
        folder: Path,
        *,
        partitions: int = 4,
        stages: int = 1,
        instance: str | None = None,
        **pace: float,
    ) -> None:
        self.prefix = uuid.uuid4().hex[:8]
        self._broker, self._folder, self._partitions = broker, folder, partitions
        self._settings = {
            "prefix": self.prefix,
            "partitions": partitions,
            "pace": pace,
            "stages": stages,
            "instance": instance,
            "log": "INFO",
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.sent: dict[str, int] = defaultdict(int)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random",
                                   "linger.ms": 2, "allow.auto.create.topics": False})  # fmt: skip
        self._consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{self.prefix}-group",
                                   "enable.auto.commit": False, "auto.offset.reset": "earliest"})  # fmt: skip

    def start_worker(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "KAFKA_BOOTSTRAP": self._broker.bootstrap, "PYTHONPATH": str(ROOT)}
        with self.log_path(len(self.workers)).open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, str(HERE / "counting_worker.py"), json.dumps(self._settings)],
                env=environment, stderr=log,
            )  # fmt: skip
        self.workers.append(worker)
        return worker

    def log_path(self, number: int) -> Path:
        return self._folder / f"worker-{self.prefix}-{number}.log"

    def log(self, number: int = 0) -> str:
        return self.log_path(number).read_text()

    def ready(self, number: int) -> None:
        eventually(lambda: "Worker ready" in self.log(number), f"worker {number} is ready")

    def send(self, entity: str, count: int = 1, **extra: Any) -> None:
        """The next `count` numbers of an entity."""
        for _ in range(count):
            number = self.sent[entity]
            self.sent[entity] += 1
            self.send_raw(entity.encode(), json.dumps({"n": number, **extra}).encode())

    def send_raw(self, key: bytes | None, value: bytes | None) -> None:
        self._producer.produce(f"{self.prefix}.in", key=key, value=value)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def read(self, name: str) -> list[Message]:
        return read_topic(self._broker.bootstrap, f"{self.prefix}{name}")

    def outputs(self, name: str = ".out") -> list[dict[str, Any]]:
        return [json.loads(message.value() or b"") for message in self.read(name)]

    def output_ids(self) -> set[str]:
        return {output["id"] for output in self.outputs()}

    def committed(self) -> dict[int, int]:
        """Committed offset of each source partition, 0 where nothing was committed."""
        asked = [TopicPartition(f"{self.prefix}.in", p) for p in range(self._partitions)]
        return {tp.partition: max(tp.offset, 0) for tp in self._consumer.committed(asked, timeout=20)}

    def all_committed(self) -> bool:
        return self.committed() == self.ends()

    def ends(self) -> dict[int, int]:
        return log_ends(self._consumer, f"{self.prefix}.in")

    def expected_ids(self) -> set[str]:
        return {f"{entity}/{number}" for entity, count in self.sent.items() for number in range(count)}

    def finish(self, within_s: float = 90.0) -> list[dict[str, Any]]:
        """Ask every entity for its state and compare everything with an undisturbed run."""
        asked = {}
        for entity in list(self.sent):
            asked[entity] = f"{entity}/{self.sent[entity]}"
            self.send(entity, state=True)
        self.flush()
        eventually(lambda: set(asked.values()) <= self.output_ids(), "every entity shows its state", within_s)
        outputs = self.outputs()
        by_id: dict[str, set[str]] = defaultdict(set)
        for output in outputs:
            by_id[output["id"]].add(json.dumps(output))
        assert set(by_id) == self.expected_ids()
        assert {id_ for id_, variants in by_id.items() if len(variants) > 1} == set(), "outputs of a re-read differ"
        for entity, id_ in asked.items():
            assert json.loads(by_id[id_].pop())["seen"] == list(range(self.sent[entity])), entity
        return outputs

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        self._consumer.close()


@pytest.fixture(scope="package")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of our own: one test kills it."""
    real = KafkaBroker(tmp_path_factory.mktemp("agents-kafka"), jars_dir=kafka_jars)
    real.start()
    yield real
    real.stop()


@pytest.fixture
def make_stage(broker: KafkaBroker, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(broker, tmp_path, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.stop()
