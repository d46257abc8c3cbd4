"""Line written -> first revision visible in the feed, at 1,000 lines/s, beside a bare Kafka and Faust round."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue

from kafka import KafkaConsumer, KafkaProducer

from pipeline.web.client import FeedClient, FeedUnreachableError
from tests.bench.bare import SOURCE, TARGET
from tests.bench.logs import noise
from tests.bench.processes import quantile
from tests.bench.throughput import Parts

RATE_PER_S = 1_000
TICK_S = 0.01


def measure(parts: Parts, feed_url: str, folder: Path, samples: int) -> list[str]:
    """Rows to print."""
    ours = _ours(parts, feed_url, folder, samples)
    bare = _bare(parts, samples)
    rows = [f"latency at {RATE_PER_S} lines/s, {samples} samples: line written -> first revision in the feed (SSE)"]
    for name, values in (("rootrank", ours), ("bare Kafka + Faust", bare)):
        ms = [value * 1000 for value in values]
        rows.append(
            f"  {name:24} p50 {quantile(ms, 0.5):7.1f} ms   p99 {quantile(ms, 0.99):7.1f} ms   ({len(ms)} seen)"
        )
    return rows


def _ours(parts: Parts, feed_url: str, folder: Path, samples: int) -> list[float]:
    log = folder / "bench.kern.log"
    log.touch()
    config = folder / "node.toml"
    config.write_text(
        'profile = "none"\n'
        f'cluster = "latency"\nreporter = "lat0"\nstart_at = "beginning"\n[kafka]\nbootstrap = "{parts.bootstrap}"\n'
        f'[spool]\ndir = "{folder}/spool"\n[[source]]\nname = "kern"\nkind = "kernel"\npath = "{log}"\n',
        encoding="utf-8",
    )
    shipper = subprocess.Popen(
        [sys.executable, "-m", "shippers", "run", "--config", str(config)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    seen: dict[str, float] = {}
    threading.Thread(target=_follow, args=(feed_url, seen), daemon=True).start()
    written: dict[str, float] = {}
    try:
        source = noise("lat0", 1)
        with log.open("a", encoding="utf-8") as out:
            for number in _paced(samples):
                for line in itertools.islice(source, round(RATE_PER_S * TICK_S) - 1):
                    out.write(line + "\n")
                sample = _sample(number)
                if sample is not None:
                    stamp = datetime.now(UTC).isoformat(timespec="microseconds")
                    out.write(f"{stamp} {sample} kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n")
                    written[sample] = time.monotonic()
                else:
                    out.write(next(source) + "\n")
                out.flush()
        _wait(lambda: len(seen) >= len(written), 10)
    finally:
        shipper.terminate()
        shipper.wait()
    return [seen[node] - at for node, at in written.items() if node in seen]


def _paced(samples: int) -> Iterator[int]:
    """Tick numbers at their time: three seconds to warm up, then a second per sample."""

    began = time.monotonic()
    for number in range(round((samples + 3) / TICK_S)):
        pause = began + number * TICK_S - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        yield number


def _sample(tick: int) -> str | None:
    """The node of the sample that falls on this tick: one a second after the warm-up, each of another node."""
    second, rest = divmod(tick, round(1 / TICK_S))
    return f"lat{second}" if rest == 37 and second >= 3 else None


def _follow(url: str, seen: dict[str, float]) -> None:
    place = ""
    while True:
        try:
            for name, incident in FeedClient(url=url).stream({"run": "live", "cluster": "latency"}, place):
                place = name
                for culprit in incident.culprits:
                    if culprit.node:
                        seen.setdefault(culprit.node, time.monotonic())
        except FeedUnreachableError:
            time.sleep(0.1)


def _bare(parts: Parts, samples: int) -> list[float]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bare", parts.bootstrap],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    latencies: Queue[float] = Queue()
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(parts.bootstrap, latencies, stop))
    reader.start()
    producer = KafkaProducer(bootstrap_servers=parts.bootstrap, linger_ms=0)
    try:
        source = noise("lat0", 2)
        for number in _paced(samples):
            batch = "\n".join(itertools.islice(source, round(RATE_PER_S * TICK_S)))
            mark = f"{time.monotonic()}" if _sample(number) is not None else "-"
            producer.send(SOURCE, key=b"k", value=f"{mark} {batch}".encode())
        _wait(lambda: latencies.qsize() >= samples, 10)
    finally:
        stop.set()
        reader.join()
        producer.close()
        worker.kill()
        worker.wait()
    return [latencies.get() for _ in range(latencies.qsize())]


def _read(bootstrap: str, latencies: Queue[float], stop: threading.Event) -> None:
    consumer = KafkaConsumer(TARGET, bootstrap_servers=bootstrap, auto_offset_reset="latest", enable_auto_commit=False)
    while not stop.is_set():
        for messages in consumer.poll(timeout_ms=50).values():
            now = time.monotonic()
            for message in messages:
                mark = message.value.partition(b" ")[0]
                if mark != b"-" and mark[:1].isdigit():
                    latencies.put(now - float(mark))
    consumer.close()


def _wait(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
