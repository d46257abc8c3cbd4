"""`make soak-cost`: what the whole agent costs while all kinds of sources are written, and whether it grows.

usage: python -m tests.bench.agent_cost [--minutes 10] [--load idle|file|mix] [--per-second 1000] [--keep FOLDER]

The agent runs as a process, profile `full`, with clock beacons, against the real broker; a stub of NVML stands in for
eight GPUs where gcc is there. Processor time is that of the processes (user and system), so other work on the machine
makes it little worse. Each minute a line is printed. In the end every line that was written must have arrived once:
exit code 1 where one is missing or doubled.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.kafka_jars import fetch_kafka_jars
from pipeline.kafka_client import KafkaClient
from schemas import codec
from schemas.records import Progress, RawBatch
from schemas.topics import RAW
from tests.bench.cost_load import Load, Stream, number_of
from tests.shippers.fakes import eventually
from tests.shippers.nvml_machine import StubMachine, build
from tests.shippers.test_kill import make_topics

ROOT: Final = Path(__file__).parents[2]
GPUS: Final = 8
WARM_UP_S: Final = 10.0
MIB: Final = 1024 * 1024
_TICKS: Final = os.sysconf("SC_CLK_TCK")
CONFIG: Final = """
cluster = "c"
reporter = "cost"
profile = "full"
start_at = "beginning"
end_file = "{folder}/end"
[kafka]
bootstrap = "{bootstrap}"
[spool]
dir = "{folder}/spool"
[jobs]
dir = "{folder}/told"
[journal]
directory = "{folder}/journal"
[nvml]
driver_root = "{folder}/driver"
sys_root = "{folder}/gpus/sys"
proc_root = "{folder}/gpus/proc"
[[source]]
name = "ranks"
path = "{folder}/logs/*.log"
[[source]]
name = "slurmd"
kind = "service"
path = "{folder}/slurmd.txt"
[[source]]
name = "kernel"
kind = "kernel"
type = "kmsg"
path = "{folder}/kmsg.txt"
"""


@dataclass
class Seen:
    """What arrived: how often each number, by stream. Read by a thread while it comes."""

    lines: dict[str, bytearray] = field(default_factory=dict)
    count: int = 0
    others: int = 0
    gaps: list[str] = field(default_factory=list)
    backlog_bytes: int = 0

    def take(self, batch: RawBatch) -> None:
        """One batch."""
        self.gaps.extend(f"{gap.source}: {gap.reason}" for gap in batch.gaps)
        for line in batch.records:
            known = number_of(line)
            if known is None:
                self.others += 1
                continue
            counts = self.lines.setdefault(known[0], bytearray())
            counts.extend(bytes(max(0, known[1] + 1 - len(counts))))
            counts[known[1]] = min(255, counts[known[1]] + 1)
            self.count += 1

    def problems(self, streams: Sequence[Stream]) -> list[str]:
        """What is missing or doubled."""
        found = []
        for stream in streams:
            counts = self.lines.get(stream.name, bytearray()).ljust(stream.count, b"\0")
            missing, once = counts.count(0), counts.count(1, 0, stream.count)
            doubled = len(counts) - once - missing
            if missing or doubled:
                found.append(f"{stream.name}: {missing} missing, {doubled} doubled or never written")
        return found


@dataclass(frozen=True, kw_only=True)
class Used:
    """One process so far."""

    pid: int
    name: str
    cpu_s: float
    resident_mib: float
    threads: int
    descriptors: int


def used(pid: int) -> list[Used]:
    """A process and its children; one that has ended meanwhile is left out."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid, *(int(child) for each in lists for child in each.read_text(encoding="ascii").split())]
    found = []
    for each in pids:
        try:
            stat = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            resident = int(Path(f"/proc/{each}/statm").read_text(encoding="ascii").split()[1])
            descriptors = len(list(Path(f"/proc/{each}/fd").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(
            Used(
                pid=each, name="agent" if each == pid else _name(words), cpu_s=(int(stat[11]) + int(stat[12])) / _TICKS,
                resident_mib=resident * os.sysconf("SC_PAGE_SIZE") / MIB, threads=int(stat[17]),
                descriptors=descriptors,
            )
        )  # fmt: skip
    return found


def _name(words: list[bytes]) -> str:
    return "nvml" if b"shippers.nvml" in words else os.fsdecode(words[0]).rpartition("/")[2]


@contextmanager
def consuming(bootstrap: str) -> Iterator[Seen]:
    """Take all that arrives, in a thread, until nothing more can come."""
    seen, stopping = Seen(), threading.Event()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, kafka_client=KafkaClient)
    parts = [TopicPartition(RAW.name, number) for number in sorted(consumer.partitions_for_topic(RAW.name) or ())]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)

    def run() -> None:
        numbers = set[tuple[str, int]]()
        while not stopping.is_set():
            for messages in consumer.poll(timeout_ms=500, max_records=200).values():
                for message in messages:
                    record = codec.decode(RAW.name, message.value)
                    if isinstance(record, Progress):
                        seen.backlog_bytes = record.spool_backlog_bytes
                    elif isinstance(record, RawBatch) and (record.shipper_id, record.batch_seq) not in numbers:
                        numbers.add((record.shipper_id, record.batch_seq))
                        seen.take(record)

    thread = threading.Thread(target=run, name="consumer", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(20)
        consumer.close()


class Table:
    """A line a minute, and what the minutes say together."""

    def __init__(self, pid: int, load: Load, seen: Seen) -> None:
        self._pid, self._load, self._seen = pid, load, seen
        self._before: dict[int, Used] = {}
        self._began_s = self._at_s = time.monotonic()
        self._written = 0
        self.residents: list[tuple[float, float]] = []
        self.percents: dict[str, list[float]] = {}

    def begin(self) -> None:
        """From here on it counts."""
        self._before = {each.pid: each for each in used(self._pid)}
        self._began_s = self._at_s = time.monotonic()
        self._written = self._load.written()
        print(
            f"{'min':>5} {'lines/s':>8} {'backlog':>9} {'open':>9}  processor time of one core, resident memory, "
            f"threads and descriptors by process"
        )

    def see_memory(self) -> None:
        """More often than a line is printed."""
        agent = used(self._pid)[0]
        self.residents.append((time.monotonic() - self._began_s, agent.resident_mib))

    def row(self) -> None:
        """One line."""
        now_s, written = time.monotonic(), self._load.written()
        passed_s = now_s - self._at_s
        cells = []
        for each in used(self._pid):
            before = self._before.get(each.pid)
            percent = 100 * (each.cpu_s - (before.cpu_s if before else 0)) / passed_s
            self.percents.setdefault(f"{each.name} ({each.pid})", []).append(percent)
            cells.append(
                f"{each.name} {percent:.2f} % {each.resident_mib:.1f} MiB {each.threads} thr {each.descriptors} fd"
            )
            self._before[each.pid] = each
        self._before = {pid: each for pid, each in self._before.items() if Path(f"/proc/{pid}").exists()}
        rate = (written - self._written) / passed_s
        print(
            f"{(now_s - self._began_s) / 60:5.1f} {rate:8.0f} {self._seen.backlog_bytes:9} "
            f"{written - self._seen.count:9}  {'; '.join(cells)}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        self._at_s, self._written = now_s, written


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How fast something grows over the last half, an hour (least squares)."""
    points = points[len(points) // 2 :]
    if len(points) < 2:
        return 0.0
    mean_s = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_s) ** 2 for at, _ in points)
    return 3600 * sum((at - mean_s) * (value - mean) for at, value in points) / spread


def start_agent(folder: Path, bootstrap: str, program: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """The agent as a process, with a stub for GPUs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if shutil.which("gcc"):
        machine = StubMachine(folder / "gpus", build(folder / "driver"), GPUS)
        environment["NVML_STUB"] = str(machine.scenario)
    config = folder / "node.toml"
    config.write_text(CONFIG.format(folder=folder, bootstrap=bootstrap), encoding="utf-8")
    with (folder / "agent.log").open("ab") as log:
        return subprocess.Popen(
            [*(program or (sys.executable, "-m", "shippers")), "run", "--config", str(config)],
            env=environment, stdin=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip


def measure(folder: Path, given: argparse.Namespace) -> list[str]:
    """Let it run; what is wrong."""
    broker = KafkaBroker(folder / "kafka", jars_dir=fetch_kafka_jars())
    broker.start()
    agent: subprocess.Popen[bytes] | None = None
    try:
        make_topics(broker.bootstrap)
        load = Load(folder, given.load, given.per_second)
        with consuming(broker.bootstrap) as seen:
            agent = start_agent(folder, broker.bootstrap, given.program.split())
            load.start()
            time.sleep(WARM_UP_S)
            table = Table(agent.pid, load, seen)
            table.begin()
            ending_s = time.monotonic() + 60 * given.minutes
            while (left_s := ending_s - time.monotonic()) > 0:
                row_s = time.monotonic() + min(60.0, left_s)
                while time.monotonic() < row_s:
                    time.sleep(min(2.0, max(0.0, row_s - time.monotonic())))
                    table.see_memory()
                table.row()
            load.stop()
            eventually(lambda: seen.count >= load.written(), "all lines have arrived", 60)
            (folder / "end").touch()
            code = agent.wait(60)
            problems = [f"the agent ended with {code}"] if code else []
            eventually(lambda: seen.count >= load.written(), "all lines have arrived", 10)
        return [*problems, *seen.problems(load.streams), *_sum(table, load, seen)]
    finally:
        if agent is not None and agent.poll() is None:
            agent.kill()
            agent.wait()
        broker.stop()


def _sum(table: Table, load: Load, seen: Seen) -> list[str]:
    means = ", ".join(f"{name} {sum(each) / len(each):.2f} %" for name, each in table.percents.items())
    print(f"mean: {means}; resident {max(value for _, value in table.residents):.1f} MiB at most")
    print(f"{load.written()} lines written, {seen.count} arrived, {seen.others} others; {len(seen.gaps)} gap markers")
    print(f"resident memory over the last half: {slope(table.residents):+.2f} MiB an hour")
    return [f"gap: {each}" for each in seen.gaps if not each.startswith("nvml")]


def main() -> None:
    """Run it; exit code 1 where a line is missing or doubled."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--load", choices=("idle", "file", "mix"), default="mix")
    options.add_argument("--per-second", type=float, default=1000)
    options.add_argument("--keep", type=Path, help="an empty folder for logs, spool and broker, which is left there")
    options.add_argument("--program", default="", help="instead of the agent, such as a profiler that runs it")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rootrank-cost-") as name:
        problems = measure(given.keep or Path(name), given)
    for problem in problems:
        print(problem)
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
