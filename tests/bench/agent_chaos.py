"""`make soak-agent`: does every line arrive once or stand in a gap marker that says how many, whatever happens?

usage: python -m tests.bench.agent_chaos [--seconds 1800] [--files 6] [--seed 1] [--keep FOLDER]

Counting writers, whose files are renamed, copied and truncated, and deleted at random; the agent is killed (-9) and
started again, the broker too, and the disk of the spool fills up. In the end what arrived and what the markers say must
add up to what was written. Exit code 1 where it does not.

Exact means: lines that the agent had read, or could still read, arrive once or are counted by a marker. Nobody can read
what was written between a copy and the truncation that follows, nor what stood in a file that was deleted before the
agent had opened it or while it was dead. Of these the writers know how many there are, and the table says it.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.kafka_jars import fetch_kafka_jars
from pipeline.kafka_client import KafkaClient
from schemas import codec
from schemas.records import RawBatch
from schemas.topics import RAW
from shippers.saved import saved_positions
from tests.bench.chaos_writers import UNKNOWABLE, Writer
from tests.shippers.fakes import eventually
from tests.shippers.test_kill import make_topics

ROOT: Final = Path(__file__).parents[2]
SPOOL_MIB: Final = 40  # of the file system; the spool itself may take 16 MiB
ROTATIONS: Final = ("rename", "copytruncate", "race", "delete")
CONFIG: Final = """
cluster = "c"
reporter = "chaos"
start_at = "beginning"
profile = "none"
end_file = "{folder}/end"
[kafka]
bootstrap = "{bootstrap}"
[spool]
dir = "{spool}"
max_bytes = 16777216
"""
SOURCE: Final = """
[[source]]
name = "{name}"
path = "{path}"
drop = "{drop}"
"""


@dataclass
class Sum:
    """What became of the lines of one source."""

    name: str
    written: int = 0
    once: int = 0
    again: int = 0
    missing: int = 0
    counted: int = 0
    unknown_markers: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def unread(self) -> int:
        """Missing lines that no marker counts."""
        return self.missing - self.counted


@dataclass
class Seen:
    """What arrived: how often each number, by source, and the markers."""

    lines: dict[str, bytearray] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


class Node:
    """The agent as a process that is killed and started again."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config = config
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.died: list[int] = []

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is not None and self.process.poll() is not None:
            self.died.append(self.process.returncode)
            self.process = None
        if self.process is None:
            self.starts += 1
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "shippers", "run", "--config", str(self._config)],
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stderr=log,
                )  # fmt: skip

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def wait(self, timeout_s: float) -> int:
        """Until it ends by itself."""
        assert self.process is not None
        return self.process.wait(timeout_s)


class Disk:
    """The disk of the spool, which can be filled: a file system of its own where that is permitted, else a limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SPOOL_MIB}m", "none", str(folder)], capture_output=True, check=False
        )
        self.is_mounted = mounted.returncode == 0
        self.kind = f"ENOSPC of a tmpfs of {SPOOL_MIB} MiB" if self.is_mounted else "EFBIG by RLIMIT_FSIZE"

    @contextmanager
    def full(self, node: Node) -> Iterator[None]:
        """Nothing can be written meanwhile."""
        ballast = self.folder / "ballast"
        if self.is_mounted:
            with ballast.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(65536)):
                        pass
                except OSError:
                    pass
            yield
            ballast.unlink()
        elif node.process is None:
            yield
        else:
            whole = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (4096, whole[1]))
            yield
            if node.process is not None and node.process.poll() is None:
                resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, whole)

    def close(self) -> None:
        """Unmount it."""
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


class Chaos:
    """What happens, and how often it did."""

    def __init__(self, seed: int, writers: list[Writer], node: Node, broker: KafkaBroker, disk: Disk) -> None:
        self._chance = Random(seed)
        self._writers = writers
        self._node = node
        self._broker = broker
        self._disk = disk
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """One thing after another for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(self._chance.uniform(0.1, 1.2))
            self._one(self._chance.random())

    def _one(self, dice: float) -> None:
        if dice < 0.70:
            how = self._chance.choice(ROTATIONS)
            self._chance.choice(self._writers).rotate(how)
            self.done[how] += 1
        elif dice < 0.85:
            self.done["kill -9 of the agent"] += 1
            self._node.kill()
            time.sleep(self._chance.choice((0, 0.3, 2.5)))
            self._node.start()
        elif dice < 0.93:
            self.done["disk full"] += 1
            with self._disk.full(self._node):
                time.sleep(self._chance.uniform(0.5, 3))
                if self._chance.random() < 0.3:
                    self._node.kill()
            self._node.start()
        else:
            self._lose_broker()

    def _lose_broker(self) -> None:
        """Kill it; often so much is written meanwhile that the spool overflows."""
        self.done["kill -9 of the broker"] += 1
        self._broker.kill()
        if self._chance.random() < 0.6:
            self.done["storm while it is away"] += 1
            for writer in self._writers[:2]:
                writer.storm(10_000)
        for _ in range(self._chance.randrange(1, 8)):
            time.sleep(1)
            if self._chance.random() < 0.25:
                self._node.kill()
                self._node.start()
                self.done["kill -9 of the agent"] += 1
        self._broker.start()


def arrived(bootstrap: str) -> Seen:
    """All that is in the raw topic, each batch number once."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, kafka_client=KafkaClient)
    parts = [TopicPartition(RAW.name, number) for number in sorted(consumer.partitions_for_topic(RAW.name) or ())]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends: dict[TopicPartition, int] = consumer.end_offsets(parts)
    seen, numbers = Seen(), set[tuple[str, int]]()
    while any(consumer.position(part) < ends[part] for part in parts):
        for messages in consumer.poll(timeout_ms=500, max_records=50).values():
            for message in messages:
                batch = codec.decode(RAW.name, message.value)
                if isinstance(batch, RawBatch) and (batch.shipper_id, batch.batch_seq) not in numbers:
                    numbers.add((batch.shipper_id, batch.batch_seq))
                    _count(batch, seen)
    consumer.close()
    return seen


def _count(batch: RawBatch, seen: Seen) -> None:
    for line in batch.records:
        _, number, _ = line.body.split(" ", 2)
        counts = seen.lines.setdefault(line.source, bytearray())
        counts.extend(bytes(max(0, int(number) + 1 - len(counts))))
        counts[int(number)] = min(255, counts[int(number)] + 1)
    for gap in batch.gaps:
        seen.reasons[" ".join(gap.reason.split(" ")[:9])] += 1
        if gap.lost_lines is None:
            seen.unknown[gap.source] += 1
        else:
            seen.counted[gap.source] += gap.lost_lines


def sum_of(writer: Writer, seen: Seen) -> Sum:
    """Does it add up for one source?"""
    counts = seen.lines.get(writer.name, bytearray()).ljust(writer.next_seq, b"\0")
    told = Sum(
        writer.name, written=writer.next_seq, once=counts.count(1), missing=counts.count(0),
        counted=seen.counted[writer.name], unknown_markers=seen.unknown[writer.name],
    )  # fmt: skip
    told.again = len(counts) - told.once - told.missing
    unseen = False
    for life in writer.lives:
        if life.fate in UNKNOWABLE:
            lost = counts.count(0, life.first, life.end)
            told.unreadable += lost
            unseen = unseen or 0 < lost < life.end - life.first
    if len(counts) > writer.next_seq:
        told.problems.append("numbers that were never written")
    if told.again:
        told.problems.append(f"{told.again} lines arrived more than once")
    if told.unread < 0:
        told.problems.append(f"markers count {-told.unread} lines that arrived")
    if told.unread > told.unreadable:
        told.problems.append(f"{told.unread - told.unreadable} readable lines are in no marker")
    if told.unread > 0 and unseen and not told.unknown_markers:
        told.problems.append("lines of a file that was read are lost without a marker")
    return told


def table(sums: list[Sum]) -> str:
    """For people."""
    rows = [
        f"{'source':<10}{'written':>10}{'once':>10}{'again':>7}{'missing':>9}{'counted':>9}{'unread':>8}{'markers':>9}"
    ]
    rows += [
        f"{each.name:<10}{each.written:>10}{each.once:>10}{each.again:>7}{each.missing:>9}{each.counted:>9}"
        f"{each.unread:>8}{each.unknown_markers:>9}  {'; '.join(each.problems) or 'adds up'}"
        for each in sums
    ]
    return "\n".join(rows)


def measure(folder: Path, *, seconds: float, files: int, seed: int) -> tuple[list[Sum], list[str]]:
    """Let it happen for so long; the sums, and what else is to be said."""
    logs = folder / "logs"
    logs.mkdir()
    broker = KafkaBroker(folder / "kafka", jars_dir=fetch_kafka_jars())
    broker.start()
    make_topics(broker.bootstrap)
    disk = Disk(folder / "spool")
    writers = [
        Writer(logs / f"w{number}.log", seed + number, 60 * (number + 1), 1000 if number < 2 else 60)
        for number in range(files)
    ]
    config = folder / "node.toml"
    config.write_text(
        CONFIG.format(folder=folder, bootstrap=broker.bootstrap, spool=disk.folder)
        + "".join(
            SOURCE.format(name=each.name, path=each.path, drop="newest" if number == 1 else "oldest")
            for number, each in enumerate(writers)
        ),
        encoding="utf-8",
    )
    node = Node(config, folder / "agent.log")
    chaos = Chaos(seed, writers, node, broker, disk)
    stopping = threading.Event()
    threads = [threading.Thread(target=each.run, args=(stopping,)) for each in writers]
    try:
        node.start()
        for each in threads:
            each.start()
        # What lies rotated beside a file that is seen for the first time is not read.
        names = {each.name for each in writers}
        eventually(lambda: names <= saved_positions(disk.folder).keys(), "each file was seen", 60)
        chaos.run(seconds)
        stopping.set()
        for each in threads:
            each.join()
        node.start()
        (folder / "end").touch()
        code = node.wait(1800)
        seen = arrived(broker.bootstrap)
    finally:
        stopping.set()
        node.kill()
        broker.stop()
        disk.close()
    notes = [
        f"{seconds:.0f} s, seed {seed}; disk full is {disk.kind}; the agent was started {node.starts} times",
        ", ".join(f"{count} x {what}" for what, count in sorted(chaos.done.items())),
        *(f"{count} x marker: {reason} ..." for reason, count in seen.reasons.most_common()),
    ]
    sums = [sum_of(each, seen) for each in writers]
    if code or node.died:
        sums[0].problems.append(f"the agent ended by itself: {[*node.died, code]}")
    return sums, notes


def main() -> None:
    """Run it; exit code 1 where it does not add up."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1800)
    options.add_argument("--files", type=int, default=6)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, help="an empty folder for logs, spool and broker, which is left there")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rootrank-chaos-") as name:
        folder = given.keep or Path(name)
        sums, notes = measure(folder, seconds=given.seconds, files=given.files, seed=given.seed)
    sys.stdout.write("\n".join((*notes, table(sums), "")))
    raise SystemExit(any(each.problems for each in sums))


if __name__ == "__main__":
    main()
