"""Node agents on one machine, each a process whose clocks are falsified by known offsets, drifts and steps.

    with start_skewed_fleet(folder, bootstrap, count=16, seed=1) as fleet:
        ...  # read `raw` or `clock.segments` and ask fleet.truth

The reference time of all nodes is the wall clock of this machine, by which the broker stamps. `truth.json` in the
folder has the falsification of each node, so that an evaluation can also be run later.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shippers.clock import HostClock
from tests.e2e.false_clocks import FalseClocks, Jump

CLUSTER: Final = "skewed"
_ROOT: Final = Path(__file__).parents[2]
_SECOND_NS: Final = 10**9
_RAW_OFFSET_S: Final = 1e6  # raw clocks begin at boot: those of two nodes have nothing in common
_DRIFT_PPB: Final = 40_000
_WALL_OFFSET_S: Final = 5.0
_WALL_STEP_S: Final = 5.0
_STEPS_AFTER_S: Final = (20.0, 300.0)
_LINE_EVERY_S: Final = 2.0
_WALL_EVERY_S: Final = 0.5


class Truth(Struct, frozen=True, kw_only=True):
    """The falsification of each node, and the machine's wall minus raw clock over the time of the run.

    `walls`: pairs of real raw time and wall minus raw, so that a wall clock that is slewed meanwhile is no error.
    """

    seed: int
    cluster: str
    nodes: dict[str, FalseClocks]
    walls: list[tuple[int, int]] = []

    def reference_ns(self, node: str, raw_ns: int) -> int:
        """The true reference time at which the node's (falsified) raw clock showed this."""
        real_ns = self.nodes[node].real_raw_ns(raw_ns)
        return real_ns + self._wall_minus_raw_ns(real_ns)

    def _wall_minus_raw_ns(self, real_ns: int) -> int:
        later = next((at for at, (raw_ns, _) in enumerate(self.walls) if raw_ns >= real_ns), len(self.walls) - 1)
        (t0, w0), (t1, w1) = self.walls[max(0, later - 1)], self.walls[later]
        return w1 if t1 == t0 else w0 + (w1 - w0) * (real_ns - t0) // (t1 - t0)


def falsify(count: int, seed: int, origin_ns: int) -> dict[str, FalseClocks]:
    """Clocks for nodes n00, n01, ...: the same ones for the same seed, but for `origin_ns`.

    Every fourth node's wall clock is stepped once, every eighth one is suspended once.
    """
    chance = random.Random(seed)
    nodes = {}
    for number in range(count):
        after_ns = round(chance.uniform(*_STEPS_AFTER_S) * _SECOND_NS)
        jump = Jump(at_ns=origin_ns + after_ns, by_ns=round(chance.uniform(-_WALL_STEP_S, _WALL_STEP_S) * _SECOND_NS))
        sleep = Jump(at_ns=origin_ns + after_ns, by_ns=round(chance.uniform(1, 100) * _SECOND_NS))
        nodes[f"n{number:02}"] = FalseClocks(
            origin_ns=origin_ns,
            raw_offset_ns=round(chance.uniform(0, _RAW_OFFSET_S) * _SECOND_NS),
            drift_ppb=round(chance.uniform(-_DRIFT_PPB, _DRIFT_PPB)),
            wall_offset_ns=round(chance.uniform(-_WALL_OFFSET_S, _WALL_OFFSET_S) * _SECOND_NS),
            wall_steps=(jump,) if number % 4 == 1 else (),
            suspends=(sleep,) if number % 8 == 3 else (),
        )
    return nodes


class SkewedFleet:
    """Running agents. Node n00 has no lines, the others get one every two seconds, stamped by their own wall clock."""

    def __init__(self, folder: Path, bootstrap: str, nodes: Mapping[str, FalseClocks], seed: int) -> None:
        self.folder = folder
        self.nodes = dict(nodes)
        self._bootstrap = bootstrap
        self._seed = seed
        self._walls: list[tuple[int, int]] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._writer = threading.Thread(target=self._live, name="skewed-fleet", daemon=True)
        self._last_line_s = float("-inf")
        self._count = 0

    @property
    def truth(self) -> Truth:
        """What is known of the clocks until now."""
        return Truth(seed=self._seed, cluster=CLUSTER, nodes=self.nodes, walls=list(self._walls))

    @property
    def pids(self) -> dict[str, int]:
        """The process of each node."""
        return {node: process.pid for node, process in self._processes.items()}

    def start(self) -> None:
        """Start one process a node."""
        self._note_wall()
        for node, clocks in self.nodes.items():
            place = self.folder / node
            place.mkdir(parents=True)
            (place / "train.log").touch()
            (place / "clocks.json").write_bytes(msgspec.json.encode(clocks))
            (place / "node.toml").write_text(_settings(node, place, self._bootstrap), encoding="utf-8")
            with (place / "agent.log").open("wb") as log:
                files = (str(place / "node.toml"), str(place / "clocks.json"))
                # An agent ends when its input does: none outlives this process, however that ends.
                self._processes[node] = subprocess.Popen(
                    [sys.executable, "-m", "tests.e2e.skewed_agent", *files],
                    cwd=_ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log,
                )  # fmt: skip
        self._writer.start()

    def stop(self) -> None:
        """End the agents and write down the truth."""
        self._stopping.set()
        if self._writer.is_alive():
            self._writer.join()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.communicate(timeout=30)
        self._note_wall()
        (self.folder / "truth.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.truth)))

    def _live(self) -> None:
        while not self._stopping.wait(_WALL_EVERY_S):
            self._note_wall()
            if time.monotonic() - self._last_line_s >= _LINE_EVERY_S:
                self._last_line_s = time.monotonic()
                self._write_lines()

    def _note_wall(self) -> None:
        reading = HostClock("machine").read()
        self._walls.append((reading.raw_ns, reading.wall_ns - reading.raw_ns))

    def _write_lines(self) -> None:
        """A line to every node but the idle one: the node's own stamp, and when it truly was."""
        self._count += 1
        for node in list(self.nodes)[1:]:
            true_ns = time.time_ns()
            wall_ns = self.nodes[node].gettime()(time.CLOCK_REALTIME)
            with (self.folder / node / "train.log").open("a", encoding="utf-8") as log:
                log.write(f"{_stamp(wall_ns)} INFO rootrank: step={self._count} phase=train true_ns={true_ns}\n")


@contextmanager
def start_skewed_fleet(folder: Path, bootstrap: str, *, count: int = 16, seed: int = 1) -> Iterator[SkewedFleet]:
    """Agents on falsified clocks against a broker that has its topics. Ends them, and writes `truth.json`."""
    origin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    fleet = SkewedFleet(folder, bootstrap, falsify(count, seed, origin_ns), seed)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def load_truth(path: Path) -> Truth:
    """The truth that a fleet left behind."""
    return msgspec.json.decode(path.read_bytes(), type=Truth)


def _settings(node: str, place: Path, bootstrap: str) -> str:
    return f"""
cluster = "{CLUSTER}"
reporter = "{node}"
machine_id = "{node}"
profile = "none"
start_at = "beginning"
[kafka]
bootstrap = "{bootstrap}"
[spool]
dir = "{place / "spool"}"
[clock]
boot_id = "boot-{node}"
[[source]]
name = "train.log"
path = "{place / "train.log"}"
attributes = {{ "job.id" = "skewed", "rank" = "{int(node[1:])}", "time.zone" = "Z" }}
"""


def _stamp(wall_ns: int) -> str:
    seconds, rest_ns = divmod(wall_ns, _SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest_ns // 1000:06}"
