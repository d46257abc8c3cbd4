"""`make bench ARGS="--only content-clocks"`: clocks aligned by what logs contain, against the clocks that wrote them.

Folders of several nodes with clocks off by up to 2.5 s that drift by up to 100 ppm and of which nothing is claimed. A
check asks, for a pair of nodes and a moment, whether the true difference of their clocks is within the bound.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, Final

from pipeline.core.content_clock.meetings import STEP_SHARE
from pipeline.core.times import at_wall
from pipeline.drill.clocks import NodeClock, new_clock
from pipeline.drill.generate import LOGS, Options, incident, write
from pipeline.drill.prefixes import cri, iso
from pipeline.folder import plan

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
BEGIN_NS: Final = 1_772_600_000 * SECOND
# Ends of one collective are at most so far apart: what the traces behind the sampled figures show.
SPREAD_NS: Final = 3 * MS
FACTOR: Final = 1.5
MOMENTS: Final = 6


@dataclass
class Made:
    """One folder: its clocks by node, when its logs begin and end, what its stamps resolve, and how far apart lines of
    one event may be for all that their emitter says. `stepped`: whose clock was set.
    """

    clocks: dict[str, NodeClock]
    begin_ns: int
    end_ns: int
    resolution_ns: int
    spread_ns: int = SPREAD_NS
    stepped: str = ""
    files: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Tally:
    """What was found in the folders of one kind."""

    folders: int = 0
    pairs: int = 0
    known: int = 0
    narrow: int = 0
    fair: int = 0
    checks: int = 0
    wrong: int = 0
    halves_ns: list[int] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Together with another kind."""
        self.folders += other.folders
        self.pairs += other.pairs
        self.known += other.known
        self.narrow += other.narrow
        self.fair += other.fair
        self.checks += other.checks
        self.wrong += other.wrong
        self.halves_ns += other.halves_ns


# --- how a job logs ---------------------------------------------------------------------------------------------------


def ends(r: Random, nodes: list[str], skews: dict[str, float], at_ns: int) -> dict[str, int]:
    """When each node sees one collective end: a part that is the node's own, a small one by chance, seldom a large one.

    Fitted to 0.14 / 0.26 / 2.55 ms (p50 / p90 / p99 of the spread over four members) in public traces.
    """
    late = r.choice(nodes) if r.random() < 0.015 else ""
    return {
        node: at_ns + round(MS * min(3, skews[node] + r.expovariate(20) + (r.uniform(0.5, 3) if node == late else 0)))
        for node in nodes
    }


def printed(r: Random, end_ns: int) -> int:
    """When the line is written: the host gets there soon, but for pauses now and then."""
    pause_ms = r.uniform(1, 80) if r.random() < 0.01 else 0.0
    return end_ns + round(MS * (r.lognormvariate(-1.9, 0.8) + pause_ms))


Line = Callable[[NodeClock, int, int, Random], str]


def _plain(clock: NodeClock, ns: int, step: int, r: Random) -> str:
    return f"[{iso(clock, ns)}] step {step} | loss {r.uniform(2, 3):.4f} | 1.000 s/it"


def _logging(clock: NodeClock, ns: int, step: int, r: Random) -> str:
    return f"{iso(clock, ns, digits=3, comma=',')} - trainer - INFO - step={step} loss={r.uniform(2, 3):.4f}"


def _micro(clock: NodeClock, ns: int, step: int, r: Random) -> str:
    return f"[{iso(clock, ns, digits=6)}] step {step} | loss {r.uniform(2, 3):.4f} |"


def _trainer(clock: NodeClock, ns: int, step: int, r: Random) -> str:
    text = f"{{'loss': {r.uniform(2, 3):.4f}, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': {step / 5000:.4f}}}"
    return cri(clock, ns, text)


def clocks(r: Random, count: int) -> dict[str, NodeClock]:
    """Half of them steered, half free."""
    return {
        f"gpu-{number + 101}": new_clock(r, BEGIN_NS, wide=False, zone_s=0, uptime_s=9e5) for number in range(count)
    }


def steps(
    r: Random, line: Line, resolution_ns: int, *, early: float = 0.0, is_set: bool = False, follows: bool = False
) -> Made:
    """Every node prints its steps. `early`: they print before the backward pass, and the slowest of them is so much of
    the step later than the fastest, every time. `is_set`: a clock is set while the job runs. `follows`: the emitter is
    known to print right after a collective.
    """
    known = clocks(r, r.choice((2, 3, 4, 4, 8, 8, 16, 32)))
    nodes, pace_s = list(known), r.choice((0.4, 0.8, 1.2, 2.0, 4.0))
    skews = {node: r.uniform(0, 0.27) for node in nodes}
    lag = {node: round(r.uniform(0, early) * pace_s * 1e9) for node in nodes}
    made = Made(known, BEGIN_NS, BEGIN_NS, resolution_ns)
    made.stepped = nodes[-1] if is_set else ""
    if not follows:
        made.spread_ns += round(STEP_SHARE * pace_s * 1e9)
    at_ns, first = BEGIN_NS, r.randrange(0, 9000)
    count = r.randrange(40, 900)
    for step in range(first, first + count):
        at_ns += round(pace_s * r.uniform(0.97, 1.05) * 1e9)
        for node, end_ns in ends(r, nodes, skews, at_ns).items():
            clock = known[node]
            if node == made.stepped and step > first + count // 2:
                clock = NodeClock(clock.epoch_ns, clock.offset_ns + 2 * SECOND, clock.wall_ppm, clock.boot_ns, 0, 0)
            shown = printed(r, end_ns + lag[node])
            made.files.setdefault(f"{node}/rank0.log", []).append(line(clock, shown, step, r))
    made.end_ns = at_ns
    return made


def one_prints(r: Random) -> Made:
    """Only the first rank prints steps: nothing binds the clocks."""
    made = steps(r, _plain, SECOND)
    first = next(iter(made.files))
    for name in made.files:
        if name != first:
            made.files[name] = made.files[name][:1]
    return made


def inits(r: Random) -> Made:
    """NCCL's own lines, stamped by the container's log; each communicator binds all nodes."""
    known = clocks(r, r.choice((2, 4, 8)))
    made = Made(known, BEGIN_NS, BEGIN_NS, 1)
    at_ns = BEGIN_NS
    for number in range(r.randrange(1, 12)):
        starts = {node: at_ns + round(r.uniform(0, 0.4) * 1e9) for node in known}
        done_ns = max(starts.values()) + round(r.uniform(0.05, 1.5) * 1e9)
        for rank, (node, clock) in enumerate(known.items()):
            place = f"rank {rank} nranks {len(known)} cudaDev 0 nvmlDev 0 busId 5e000"
            head = f"{node}:80:82 [0] NCCL INFO comm 0x55d{number} {place} commId 0x9a8b{number:04x}"
            lines = made.files.setdefault(f"{node}/rank0.log", [])
            lines.append(cri(clock, starts[node], f"{head} - Init START"))
            lines.append(cri(clock, done_ns + round(r.uniform(0, 0.3) * 1e9), f"{head} - Init COMPLETE"))
        at_ns = done_ns + round(r.uniform(0.5, 20) * 1e9)
    made.end_ns = at_ns
    return made


def dumps(r: Random) -> Made:
    """Dumps of PyTorch's flight recorder: when a collective was enqueued, and when the watchdog, which looks every
    100 ms, saw that it had ended.
    """
    known = clocks(r, r.choice((2, 4, 8, 16)))
    nodes, skews = list(known), {node: r.uniform(0, 0.27) for node in known}
    looks = {node: r.uniform(0, 0.1) for node in nodes}
    made = Made(known, BEGIN_NS, BEGIN_NS, 100 * MS)
    entries: dict[str, list[dict[str, Any]]] = {node: [] for node in nodes}
    at_ns, pace_s = BEGIN_NS, r.choice((0.05, 0.2, 0.9))
    for seq in range(1, r.randrange(60, 400)):
        at_ns += round(pace_s * r.uniform(0.9, 1.1) * 1e9)
        for node, end_ns in ends(r, nodes, skews, at_ns).items():
            clock, ahead = known[node], round(r.uniform(0.1, 1) * pace_s * 0.2e9)
            turn = round((end_ns / 1e9 - looks[node]) / 0.1 + 0.5) * 0.1 + looks[node]
            seen_ns = max(end_ns, round(turn * 1e9))
            entries[node].append({
                "frames": [], "record_id": seq, "pg_id": 0, "process_group": ["0", "default_pg"],
                "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": "nccl:all_reduce",
                "time_created_ns": clock.wall_ns(at_ns - ahead), "input_sizes": [[512]], "output_sizes": [[512]],
                "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed",
                "time_discovered_started_ns": None, "time_discovered_completed_ns": clock.wall_ns(seen_ns),
                "retired": True, "timeout_ms": 600000, "is_p2p": False, "duration_ms": None,
            })  # fmt: skip
    for rank, node in enumerate(nodes):
        group = {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(nodes))))}
        dump = {
            "version": "2.9", "entries": entries[node], "rank": rank, "pg_status": {}, "pg_config": {"0": group},
        }  # fmt: skip
        made.files[f"{node}/nccl_trace_rank_{rank}.json"] = [json.dumps(dump)]
    made.end_ns = at_ns
    return made


def _titan(clock: NodeClock, ns: int, step: int, r: Random) -> str:
    return (
        f"[rank0]:[titan] {iso(clock, ns, digits=3, comma=',')} - root - INFO - step: {step:2}  loss: "
        f"{r.uniform(2, 3):7.4f}  grad_norm:  1.2501  memory: 42.30GiB(53.40%)  tps: 7,123  tflops: 412.10  mfu: 41.67%"
    )


KINDS: Final[dict[str, Callable[[Random], Made]]] = {
    "steps, 1 s stamps": lambda r: steps(r, _plain, SECOND),
    "steps, 1 ms stamps": lambda r: steps(r, _logging, MS),
    "steps, 1 us stamps": lambda r: steps(r, _micro, 1_000),
    "steps before backward, 1 s": lambda r: steps(r, _plain, SECOND, early=0.2),
    "steps before backward, 1 ms": lambda r: steps(r, _logging, MS, early=0.2),
    "Trainer, ns stamps": lambda r: steps(r, _trainer, 1, follows=True),
    "torchtitan, 1 ms stamps": lambda r: steps(r, _titan, MS, follows=True),
    "flight recorder": dumps,
    "NCCL init, ns stamps": inits,
    "only one prints": one_prints,
    "a clock is set": lambda r: steps(r, _plain, SECOND, is_set=True),
}


# --- what is found ----------------------------------------------------------------------------------------------------


def judged(made: Made, folder: Path, r: Random) -> Tally:
    """Compare what a folder is taken to show with its clocks."""
    claims = {node.reporter: node.claim for node in plan([folder]).nodes}
    tally = Tally(folders=1)
    steady = [node for node in made.clocks if node != made.stepped and node in claims]
    moments = [r.randrange(made.begin_ns, made.end_ns) for _ in range(MOMENTS - 2)] + [made.begin_ns, made.end_ns]
    allowed_ns, fair_ns = (FACTOR * (made.resolution_ns + spread_ns) for spread_ns in (SPREAD_NS, made.spread_ns))
    for one, other in combinations(steady, 2):
        tally.pairs += 1
        a, b = claims[one], claims[other]
        if a is None or b is None or not a.knots or not b.knots:
            continue
        tally.known += 1
        halves = []
        for moment_ns in moments:
            shown_a, shown_b = made.clocks[one].wall_ns(moment_ns), made.clocks[other].wall_ns(moment_ns)
            (offset_a, bound_a), (offset_b, bound_b) = at_wall(a, shown_a), at_wall(b, shown_b)
            off_ns = abs((offset_a - offset_b) - (shown_b - shown_a))
            halves.append(bound_a + bound_b)
            tally.checks += 1
            tally.wrong += off_ns > bound_a + bound_b
        middle = sorted(halves)[len(halves) // 2]
        tally.halves_ns.append(middle)
        tally.narrow += middle <= allowed_ns
        tally.fair += middle <= fair_ns
    return tally


def of_kind(make: Callable[[Random], Made], folder: Path, seeds: Iterable[int]) -> Tally:
    """All folders of one kind."""
    whole = Tally()
    for seed in seeds:
        r = Random(f"content-clocks/{seed}")
        made, at = make(r), folder / str(seed)
        for name, lines in made.files.items():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_text("\n".join(lines) + "\n")
        whole.add(judged(made, at, r))
    return whole


def of_drills(folder: Path, seeds: Iterable[int]) -> Tally:
    """Invented incidents whose manifests claim nothing of clocks."""
    whole = Tally()
    for seed in seeds:
        one = incident(Options(seed=seed))
        fleet = one.story.fleet
        if fleet.claimed or len(fleet.nodes) < 2 or len(fleet.nodes) > 64:
            continue
        write(one, folder / str(seed))
        known = {node.name: node.clock for node in fleet.nodes}
        begin_ns = one.truth.started_at_ns
        times = [line.true_ns for lines in one.files.values() for line in lines]
        whole.add(judged(Made(known, begin_ns, max(times), SECOND), folder / str(seed) / LOGS, Random(seed)))
    return whole


def measure(folder: Path, count: int) -> Iterator[str]:
    """The table: by kind, how many pairs are bound, how many within 1.5 times (resolution + spread of the ends of
    collectives), how many with the spread that the emitter allows for, and how many checks found a bound wrong.
    """
    yield (
        f"{'kind':28} {'folders':>7} {'pairs':>6} {'bound':>7} {'narrow':>7} {'fair':>7} {'checks':>7} {'wrong':>6} "
        f"{'half-width p50':>15}"
    )
    whole = Tally()
    for name, make in KINDS.items():
        tally = of_kind(make, folder / name.replace(" ", "-"), range(count))
        yield _row(name, tally)
        if name not in ("only one prints", "a clock is set"):
            whole.add(tally)
    yield _row("all that share events", whole)
    yield _row("drills without claims", of_drills(folder / "drills", range(930_000, 930_000 + 10 * count)))


def _row(name: str, tally: Tally) -> str:
    halves = sorted(tally.halves_ns)
    middle = f"{halves[len(halves) // 2] / MS:.1f} ms" if halves else "-"
    pairs = max(tally.pairs, 1)
    shares = " ".join(f"{100 * count / pairs:6.1f}%" for count in (tally.known, tally.narrow, tally.fair))
    return f"{name:28} {tally.folders:7} {tally.pairs:6} {shares} {tally.checks:7} {tally.wrong:6} {middle:>15}"
