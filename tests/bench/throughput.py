"""CPU-seconds per million lines of each process, beside a bare producer and a bare Faust worker on the same bytes."""

import asyncio
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pipeline.agents.broker import TopicPlan, create_topics
from pipeline.folder import plan
from pipeline.reader import records
from pipeline.replay import Replay, Settings
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from schemas.codec import encode
from tests.bench.bare import SOURCE, TARGET
from tests.bench.logs import write_folder
from tests.bench.processes import cpu_s
from tests.polling import until


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is running: addresses and process ids."""

    bootstrap: str
    clickhouse_url: str
    pids: dict[str, int]


def make_bare_topics(bootstrap: str) -> None:
    """The two topics of the yardstick."""
    plans = [TopicPlan(name=n, partitions=4, settings={"max.message.bytes": "8388608"}) for n in (SOURCE, TARGET)]
    asyncio.run(create_topics(bootstrap, plans, replication=1))


def measure(parts: Parts, folder: Path, lines: int) -> list[str]:
    """Rows to print."""
    log = folder / "logs"
    lines = write_folder(log, nodes=4, lines=lines)
    before = {name: cpu_s(pid) for name, pid in parts.pids.items()}
    children = _children_s()
    began = time.monotonic()
    Replay(plan([log]), Settings(bootstrap=parts.bootstrap, work_dir=folder / "replay", run_id="bench")).run()
    shipped = time.monotonic() - began
    _wait_stored(parts, lines)
    stored = time.monotonic() - began
    million = lines / 1e6
    rows = [f"throughput: {lines} lines of 4 nodes; shipped in {shipped:.1f} s, all in ClickHouse after {stored:.1f} s"]
    rows.append(f"  shippers (4 processes)   {(_children_s() - children) / million:7.1f} CPU-s per million lines")
    for name, pid in parts.pids.items():
        rows.append(f"  {name:24} {(cpu_s(pid) - before[name]) / million:7.1f} CPU-s per million lines")
    return rows + _bare(parts, log, lines)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_stored(parts: Parts, lines: int) -> None:
    store = Store(settings_from_url(parts.clickhouse_url))
    count = "SELECT count() FROM raw_lines WHERE run_id = 'bench'"
    until(lambda: next(iter(store.rows(count)))[0] >= lines, timeout_s=600, what="all lines in ClickHouse")
    store.close()


def _bare(parts: Parts, log: Path, lines: int) -> list[str]:
    """The same batches, encoded beforehand, through a plain producer and a Faust agent that passes them on."""
    messages = [(keyed.key, encode(keyed.record)) for keyed in records(plan([log]))]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bare", parts.bootstrap],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wanted = _end(parts.bootstrap, TARGET) + len(messages)
        used, began = time.process_time(), time.monotonic()
        producer = KafkaProducer(
            bootstrap_servers=parts.bootstrap, compression_type="zstd", max_request_size=8388608, linger_ms=5
        )
        for key, value in messages:
            producer.send(SOURCE, key=key, value=value)
        producer.flush()
        produced = time.process_time() - used
        until(lambda: _end(parts.bootstrap, TARGET) >= wanted, timeout_s=300, what="all passed on")
        wall = time.monotonic() - began
        million = lines / 1e6
        return [
            f"bare: the same {len(messages)} messages, passed on after {wall:.1f} s",
            f"  bare producer            {produced / million:7.1f} CPU-s per million lines",
            f"  bare Faust worker        {cpu_s(worker.pid) / million:7.1f} CPU-s per million lines",
        ]
    finally:
        worker.kill()
        worker.wait()


def _end(bootstrap: str, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return sum(consumer.end_offsets(places).values())
    finally:
        consumer.close()
