"""Clock beacons: small messages that a broker stamps, so that its clock and ours can be compared.

Their producer shares nothing with that of the batches: acks=1, no retries, no idempotence (a retried duplicate would
bring back an old stamp), one in flight. A beacon counts only if its leader was the same before and after.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.producer.future import RecordMetadata

from schemas import codec
from schemas.records import ClockBeacon, ClockSample
from schemas.topics import CLOCK_BEACON, key_of
from shippers.clock import Clock
from shippers.config import Config
from shippers.sink import SinkUnavailableError, connect

SENTINEL_MS: Final = 1  # a topic that does not stamp echoes it, so that it cannot pass for a perfect clock
_BROKERS: Final = 3
SAMPLES_KEPT: Final = 600
_ACK_S: Final = 5.0
_RETRY_S: Final = 5.0

Leader = tuple[int, int]  # broker id, leader epoch


class BeaconProducer:
    """Beacons to the leaders of up to three partitions. Each answer is a sample, or nothing."""

    def __init__(self, config: Config, clock: Clock, shipper_id: str, topic: str = CLOCK_BEACON.name) -> None:
        """Connect. Raises SinkUnavailableError."""
        self._config = config
        self._topic = topic
        self._clock = clock
        self._shipper_id = shipper_id
        self._key = key_of(config.run, config.run_id, config.cluster, config.reporter)
        self._clients: list[Any] = []
        self._producer: KafkaProducer = connect(
            config.kafka, acks=1, enable_idempotence=False, retries=0, linger_ms=0, compression_type=None,
            max_in_flight_requests_per_connection=1, metadata_max_age_ms=30_000, request_timeout_ms=5000,
            delivery_timeout_ms=5000, kafka_client=self._make_client,
        )  # fmt: skip
        self.is_unstamped = False  # the last beacon came back without a stamp of the broker

    @property
    def settings(self) -> Mapping[str, Any]:
        """The producer's settings as it runs."""
        return dict(self._producer.config)

    def partitions(self) -> list[int]:
        """One partition of each of the first brokers. Raises SinkUnavailableError where the topic is missing."""
        try:
            known = sorted(self._producer.partitions_for(self._topic))
        except kafka_errors.KafkaError as error:
            raise SinkUnavailableError(f"topic {self._topic}: {type(error).__name__}") from None
        chosen: dict[int, int] = {}
        for partition in known:
            leader = self._leader(partition)
            if leader is not None:
                chosen.setdefault(leader[0], partition)
        return list(chosen.values())[:_BROKERS]

    def sample(self, partition: int, seq: int) -> ClockSample | None:
        """Send one beacon and wait for its stamp; None on any doubt."""
        self.is_unstamped = False
        before = self._leader(partition)
        if before is None:
            return None
        answers: list[tuple[int, RecordMetadata | None]] = []
        answered = threading.Event()

        def on_ack(metadata: RecordMetadata) -> None:
            t1_ns = self._clock.raw_ns()
            answers.append((t1_ns, metadata))
            answered.set()

        def on_error(error: BaseException) -> None:
            if isinstance(error, kafka_errors.InvalidTimestampError):
                self.is_unstamped = True  # a topic of CreateTime that refuses the sentinel as too old
            answered.set()

        t0_ns = self._clock.raw_ns()
        beacon = ClockBeacon(
            cluster=self._config.cluster, reporter=self._config.reporter, boot_id=self._clock.boot_id,
            shipper_id=self._shipper_id, seq=seq, t0_ns=t0_ns,
        )  # fmt: skip
        value = codec.encode(beacon)
        t0_ns = self._clock.raw_ns()
        try:
            future = self._producer.send(
                self._topic, value=value, key=self._key, partition=partition, timestamp_ms=SENTINEL_MS
            )
        except (kafka_errors.KafkaError, ValueError):
            return None
        future.add_callback(on_ack)
        future.add_errback(on_error)
        if not answered.wait(_ACK_S) or not answers:
            return None
        return self.accepted(t0_ns, answers[0][0], answers[0][1], before, self._leader(partition))

    def accepted(
        self, t0_ns: int, t1_ns: int, metadata: RecordMetadata | None, before: Leader, after: Leader | None
    ) -> ClockSample | None:
        """The sample in an answer; None where the leader changed, the clock ran back or the topic does not stamp."""
        if metadata is None or before != after or t1_ns < t0_ns:
            return None
        if metadata.timestamp in (None, -1, SENTINEL_MS):
            self.is_unstamped = True
            return None
        return ClockSample(
            t0_ns=t0_ns, t1_ns=t1_ns, broker_time_ms=metadata.timestamp, broker_id=before[0], leader_epoch=before[1]
        )

    def close(self) -> None:
        """Close the connection."""
        try:
            self._producer.close(timeout=0.5)
        except kafka_errors.KafkaError:
            return

    def _make_client(self, **options: Any) -> KafkaNetClient:
        client = KafkaNetClient(**options)
        self._clients.append(client)
        return client

    def _leader(self, partition: int) -> Leader | None:
        where = TopicPartition(self._topic, partition)
        cluster = self._clients[0].cluster
        leader, epoch = cluster.leader_for_partition(where), cluster.leader_epoch_for_partition(where)
        if leader is None or leader < 0 or epoch is None:
            return None
        return leader, epoch


class Samples:
    """Samples that wait for a batch: the last ones, however long none comes."""

    def __init__(self) -> None:
        self._waiting: deque[ClockSample] = deque(maxlen=SAMPLES_KEPT)

    def keep(self, sample: ClockSample) -> None:
        """One more; beyond the limit the oldest goes."""
        self._waiting.append(sample)

    def take(self) -> list[ClockSample]:
        """All that wait, oldest first. Safe beside `keep` of another thread."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


class Beacons:
    """The thread that sends beacons at an interval and keeps the samples until a batch takes them."""

    def __init__(
        self, config: Config, clock: Clock, shipper_id: str, tell: Callable[[str], None],
        topic: str = CLOCK_BEACON.name,
    ) -> None:  # fmt: skip
        self._config = config
        self._topic = topic
        self._make: Callable[[], BeaconProducer] = lambda: BeaconProducer(config, clock, shipper_id, topic)
        self._tell = tell
        self._samples = Samples()
        self._stopping = threading.Event()
        self._said_unstamped = False
        self._thread = threading.Thread(target=self._run, name="beacons", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def take_samples(self) -> list[ClockSample]:
        """The samples since the last call."""
        return self._samples.take()

    def stop(self) -> None:
        """End, without waiting for what is on its way."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                producer = self._make()
            except SinkUnavailableError:
                self._stopping.wait(_RETRY_S)  # the batches' connection says that Kafka is away
                continue
            try:
                self._send_all(producer)
            except SinkUnavailableError:
                self._stopping.wait(_RETRY_S)
            finally:
                producer.close()

    def _send_all(self, producer: BeaconProducer) -> None:
        seq = 0
        failures = 0
        while not self._stopping.is_set() and failures < 10:
            began_s = time.monotonic()
            for partition in producer.partitions():
                sample = producer.sample(partition, seq)
                seq += 1
                # A topic that does not stamp is no failure of the connection.
                failures = 0 if sample or producer.is_unstamped else failures + 1
                if sample:
                    self._samples.keep(sample)
            if producer.is_unstamped and not self._said_unstamped:
                self._said_unstamped = True
                self._tell(
                    f"topic {self._topic} does not stamp beacons: set message.timestamp.type=LogAppendTime on it"
                )
            self._stopping.wait(max(0.0, self._config.clock.beacon_interval_ms / 1000 - (time.monotonic() - began_s)))
