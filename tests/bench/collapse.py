"""A collapse of 16,384 ranks, each of which says all that it has to say: `diagnose` over the folder, and live.

Live, its lines go straight to the raw topic as shippers would batch them: those of the quiet hours before at once, the
rest, from shortly before the first fatal line on, at the pace at which they were written. Each node reports its
progress every second. Kafka, worker and feed are the real ones; there is no store.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka import Producer

from pipeline.drill import generate, scoring
from pipeline.drill.generate import Incident as Made
from pipeline.drill.generate import Options
from pipeline.drill.output import Written
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.ports import free_port
from pipeline.folder import FolderPlan, NodePlan, plan
from pipeline.reader import empty_batch
from pipeline.up import Service, prepare_kafka, wait_for_feed
from pipeline.web.client import FeedClient, FeedUnreachableError
from schemas.codec import encode
from schemas.records import ClockReading, Incident, Progress, RawBatch, RawLine, SourceProgress
from schemas.topics import RAW, key_of
from schemas.vocabulary import STANDING
from tests.bench.processes import cpu_s

SECOND_NS = 1_000_000_000
RANKS = 16_384
# A rank that its cgroup's limit killed; connections break until InfiniBand gives up; 499,437 lines in 4,099 files.
STORY = Options(seed=2, chain="C15", ranks=RANKS, gpus_per_node=8, brief_above=RANKS)
# How often an agent looks at its files.
BATCH_NS = SECOND_NS // 20
BATCH_LINES = 1_000
BEFORE_NS = 10 * SECOND_NS
RUN_ID = "collapse"


def post_mortem(folder: Path, processes: list[int]) -> Iterator[str]:
    """The rows of `diagnose`."""
    made = generate.incident(STORY)
    generate.write(made, folder)
    logs = folder / generate.LOGS
    count, size = sum(map(len, made.files.values())), sum(file.stat().st_size for file in logs.rglob("*.*"))
    yield f"\ncollapse: {RANKS:,} ranks, {count:,} lines in {len(made.files):,} files, {size / 1e6:.0f} MB"
    for number in processes:
        yield _diagnosing(logs, made, number)


def _diagnosing(logs: Path, made: Made, processes: int) -> str:
    out = logs.parent / "said.json"
    began = time.perf_counter()
    with out.open("wb") as file:
        command = [sys.executable, "-m", "pipeline", "diagnose", "--json", str(logs), "--processes", str(processes)]
        child = subprocess.Popen(command, stdout=file)
        _, _, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    said = msgspec.json.decode(out.read_bytes())["incidents"]
    incidents = [msgspec.convert({**shape, "record": "incident"}, Incident) for shape in said]
    score = scoring.judge("collapse", made.truth, incidents)
    return (
        f"  diagnose, {processes} processes  {wall:6.1f} s  {used.ru_utime + used.ru_stime:6.1f} CPU-s in all  "
        f"{used.ru_maxrss / 1024:5.0f} MiB the largest  culprit {score.culprit}, {score.said}  {_load()}"
    )


def _load() -> str:
    return f"(load {os.getloadavg()[0]:.1f})"


# --- live ---------------------------------------------------------------------------------------------------------


@dataclass
class Ready:
    """One batch of one node, encoded: when it is due (true ns) and its number."""

    due_ns: int
    key: bytes
    data: bytes
    reporter: str
    seq: int


@dataclass
class Heard:
    """What the feed said and when (true ns)."""

    revisions: list[tuple[int, Incident]] = field(default_factory=list)
    stopped: bool = False


def live(folder: Path, lead_s: float, progress_s: float) -> Iterator[str]:
    """The rows of the live path."""
    broker, port = KafkaBroker(folder / "data", port=free_port(9092)), free_port(8088)
    kafka = broker.start()
    asyncio.run(prepare_kafka(kafka))
    services = [
        Service("worker", ["worker", "--kafka", kafka, "--instance", "collapse"], folder),
        Service("feed", ["web", "--kafka", kafka, "--port", str(port)], folder),
    ]
    try:
        for service in services:
            service.start()
        wait_for_feed("127.0.0.1", port)
        yield from _measure(
            folder, kafka, f"http://127.0.0.1:{port}", (lead_s, progress_s), {s.name: s.pid or 0 for s in services}
        )
    finally:
        for service in services:
            service.stop()
        broker.stop()


def _measure(folder: Path, kafka: str, url: str, pace: tuple[float, float], pids: dict[str, int]) -> Iterator[str]:
    lead_s, progress_s = pace
    end_ns = time.time_ns() + round(lead_s * SECOND_NS)
    made = generate.incident(msgspec.structs.replace(STORY, end_ns=end_ns))
    generate.write(made, folder / "story")
    planned = plan([folder / "story" / generate.LOGS])
    lines = [line for written in made.files.values() for line in written]
    first_ns = min(line.true_ns for line in lines if line.tag in made.truth.knowable.needs)
    last_ns = max(line.true_ns for line in lines)
    batches = sorted(_batches(planned, made, first_ns - BEFORE_NS), key=lambda ready: ready.due_ns)
    heard = Heard()
    threading.Thread(target=_follow, args=(url, heard), daemon=True).start()
    producer = Producer(
        {"bootstrap.servers": kafka, "compression.type": "zstd", "linger.ms": 5, "partitioner": "murmur2",
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    before = [ready for ready in batches if ready.due_ns < first_ns - BEFORE_NS]
    used = {name: cpu_s(pid) for name, pid in pids.items()}
    for ready in before:
        producer.produce(RAW.name, key=ready.key, value=ready.data)
    producer.flush()
    late_s = max(0.0, (time.time_ns() - first_ns + BEFORE_NS) / SECOND_NS)
    yield f"  {len(before):,} batches of the time before are in Kafka, {late_s:.1f} s late {_load()}"
    _sleep_until(first_ns - BEFORE_NS)
    warm = {name: cpu_s(pid) for name, pid in pids.items()}
    behind_s = _play(
        producer, planned, batches[len(before) :], {r.reporter: r.seq for r in before}, (last_ns, progress_s)
    )
    yield f"  played {len(lines):,} lines, the player at most {behind_s:.1f} s behind {_load()}"
    yield from _told(made, heard, first_ns, last_ns)
    for name, pid in pids.items():
        yield f"  {name}: {warm[name] - used[name]:.1f} CPU-s before, {cpu_s(pid) - warm[name]:.1f} CPU-s since"


def _batches(planned: FolderPlan, made: Made, since_ns: int) -> Iterator[Ready]:
    """What the agents of all nodes would send, in order for each node."""
    for node in planned.nodes:
        timed: list[tuple[int, RawLine]] = []
        for source in node.sources:
            assert not source.kmsg, "this story's kernels do not print records of /dev/kmsg"
            timed += _lines(source.name, made.files[source.name])
        timed.sort(key=lambda pair: pair[0])
        attributes = {source.name: source.attributes for source in node.sources}
        key, seq, group = key_of("drill", RUN_ID, planned.cluster, node.reporter), 0, list[RawLine]()
        slot = 0
        for due_ns, line in timed:
            new = 0 if due_ns < since_ns else due_ns // BATCH_NS
            if group and (new != slot or len(group) == BATCH_LINES):
                seq += 1
                yield _ready(planned, node, attributes, group, seq, key, slot)
                group = []
            slot = new
            group.append(line)
        if group:
            yield _ready(planned, node, attributes, group, seq + 1, key, slot)


def _lines(source: str, written: list[Written]) -> Iterator[tuple[int, RawLine]]:
    offset = 0
    for number, line in enumerate(written, 1):
        yield (
            line.true_ns,
            RawLine(seq=number, source=source, generation="0", offset=offset, line_no=number, body=line.text),
        )
        offset += len(line.text.encode()) + 1


def _ready(
    planned: FolderPlan, node: NodePlan, attributes: dict[str, dict[str, str]], lines: list[RawLine], seq: int,
    key: bytes, slot: int,
) -> Ready:  # fmt: skip
    due_ns = (slot + 1) * BATCH_NS if slot else 0
    batch = msgspec.structs.replace(
        empty_batch(planned.cluster, node), run="drill", run_id=RUN_ID, batch_seq=seq, records=lines,
        source_attributes={name: attributes[name] for name in {line.source for line in lines}},
        clock=_clock(node, due_ns or time.time_ns()),
    )  # fmt: skip
    assert isinstance(batch, RawBatch)
    return Ready(due_ns, key, encode(batch), node.reporter, seq)


def _clock(node: NodePlan, wall_ns: int) -> ClockReading:
    """A reading of the clocks of a node: the wall clocks of this story are right within a second."""
    ago_ns = node.clock.wall_ns - wall_ns
    return ClockReading(
        raw_ns=max(0, node.clock.raw_ns - ago_ns), mono_ns=max(0, node.clock.mono_ns - ago_ns),
        boottime_ns=max(0, node.clock.boottime_ns - ago_ns), wall_ns=wall_ns,
    )  # fmt: skip


def _play(
    producer: Producer, planned: FolderPlan, batches: list[Ready], seqs: dict[str, int], until: tuple[int, float]
) -> float:
    """Send what is due, and of each node its progress from time to time. Returns how far it fell behind (s)."""
    last_ns, every_s = until
    count, behind_ns, at, sent = len(planned.nodes), 0, 0, 0
    progress = [_progress(planned, node) for node in planned.nodes]
    began_ns = time.time_ns()
    while (now_ns := time.time_ns()) < last_ns + 60 * SECOND_NS:
        while at < len(batches) and batches[at].due_ns <= now_ns:
            ready = batches[at]
            behind_ns = max(behind_ns, now_ns - ready.due_ns)
            producer.produce(RAW.name, key=ready.key, value=ready.data)
            seqs[ready.reporter] = ready.seq
            at += 1
        while sent < (now_ns - began_ns) / SECOND_NS / every_s * count:
            reporter, key, data = progress[sent % count]
            wall, seq = str(now_ns).encode(), str(seqs.get(reporter, 0)).encode()
            producer.produce(RAW.name, key=key, value=data.replace(_WALL, wall).replace(_SEQ, seq))
            sent += 1
        producer.poll(0)
        time.sleep(0.02)
    producer.flush()
    return behind_ns / SECOND_NS


# Numbers that stand for those that change from one progress record of a node to the next.
_WALL, _SEQ = b"1111111111111111111", b"2222222222"


def _progress(planned: FolderPlan, node: NodePlan) -> tuple[str, bytes, bytes]:
    """A reporter, its key, and its progress with numbers to be replaced."""
    record = Progress(
        run="drill", run_id=RUN_ID, cluster=planned.cluster, reporter=node.reporter, machine_id=node.machine_id,
        boot_id=node.boot_id, shipper_id=empty_batch(planned.cluster, node).shipper_id, last_batch_seq=int(_SEQ),
        clock=_clock(node, int(_WALL)), clock_claim=node.claim,
        sources=[
            SourceProgress(
                source=source.name, state="on", kind=source.kind, at_end=True, read_through_unix_nano=int(_WALL),
                attributes=source.attributes,
            )
            for source in node.sources
        ],
    )  # fmt: skip
    key = key_of("drill", RUN_ID, planned.cluster, node.reporter)
    return node.reporter, key, encode(record)


def _follow(url: str, heard: Heard) -> None:
    place = ""
    while True:
        try:
            for name, incident in FeedClient(url=url).stream({"run": "drill"}, place):
                place = name
                heard.revisions.append((time.time_ns(), incident))
        except FeedUnreachableError:
            time.sleep(0.1)


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0.0, (at_ns - time.time_ns()) / SECOND_NS))


def _told(made: Made, heard: Heard, first_ns: int, last_ns: int) -> Iterator[str]:
    """When the feed said something first, and when it said the truth and stayed with it."""
    standing: dict[str, Incident] = {}
    first = right = None
    for at_ns, incident in heard.revisions:
        standing[incident.incident_id] = incident
        found = sorted((one for one in standing.values() if one.state in STANDING), key=lambda one: -one.confidence)
        score = scoring.judge("collapse", made.truth, found)
        since = (at_ns - first_ns) / SECOND_NS
        yield f"    {since:+7.2f} s  {incident.state} {incident.verdict} {score.said}, culprit {score.culprit}"
        first = since if first is None and found and since > 0 else first
        is_right = bool(found) and score.right
        right = None if not is_right else right if right is not None else (at_ns - last_ns) / SECOND_NS
    lasted_s = (last_ns - first_ns) / SECOND_NS
    yield f"  first revision {first} s after the first fatal line, the last line {lasted_s:.1f} s after it"
    yield f"  the culprit is right for good {right} s after the last line {_load()}"
