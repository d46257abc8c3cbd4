"""Recorded clocks of invented nodes: beacons to a broker that shows true time, readings, marks in the kernel log.

The channel is a quiet network: 0.2 ms and an exponential 0.15 ms each way, one message in a hundred 2 to 20 ms late.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from pipeline.drill.clocks import SECOND_NS, NodeClock
from pipeline.drill.fleet import Fleet, Node

EVERY_NS: Final = 10 * SECOND_NS
# So many beacons are told at once, with one reading of the clocks and a mark in the kernel log.
TOGETHER: Final = 6
# A fleet of thousands sends fewer, so that a folder stays small.
BEACONS: Final = 12_000
BEFORE_NS: Final = 200 * SECOND_NS
_STEPPED: Final = 0.5
_LEAST_STEP_S: Final = 0.5


@dataclass(frozen=True)
class Skew:
    """How wall clocks are falsified: off by up to `most_s`, half of them stepped by as much in [from_ns, to_ns]."""

    seed: int
    most_s: float
    span: tuple[int, int] | None = None

    def falsified(self, name: str, clock: NodeClock, *, shared: bool) -> NodeClock:
        """The clocks of a node. In a log that all write, nobody can tell whose clock stamped a line: none is off."""
        r = Random(f"skew/{self.seed}/{name}")
        most_s = 0.0 if shared else self.most_s
        raw_ppm, offset_s, step_s = r.uniform(-40, 40), r.uniform(-most_s, most_s), r.uniform(_LEAST_STEP_S, most_s)
        step_s *= r.choice((-1, 1))
        at, is_stepped = r.random(), r.random() < _STEPPED
        steps: tuple[tuple[int, int], ...] = ()
        if self.span is not None and is_stepped and most_s >= _LEAST_STEP_S:
            begin_ns, end_ns = self.span
            steps = ((begin_ns + round(at * (end_ns - begin_ns)), round(step_s * SECOND_NS)),)
        return replace(
            clock, offset_ns=round(offset_s * SECOND_NS), wall_ppm=clock.wall_ppm if most_s else 0.0, raw_ppm=raw_ppm,
            steps=steps,
        )  # fmt: skip


def records(
    seed: int, fleet: Fleet, begin_ns: int, end_ns: int, reboots: Mapping[str, int], dead: Mapping[str, int]
) -> Iterator[tuple[str, list[str]]]:
    """Per node the lines of its record, from a little before the story to its end, or to the end of the node."""
    nodes = [*fleet.nodes, *fleet.others]
    every_ns = max(EVERY_NS, (end_ns - begin_ns + BEFORE_NS) * len(nodes) // BEACONS)
    for node in nodes:
        r = Random(f"beacons/{seed}/{node.name}")
        last_ns = min(end_ns, dead.get(node.name, end_ns))
        spans = [(node.clock, node.boot_id, begin_ns - BEFORE_NS, last_ns)]
        if node.name in reboots:
            again_ns = reboots[node.name]
            spans = [
                (node.clock, f"{node.boot_id}-before", begin_ns - BEFORE_NS, min(last_ns, again_ns)),
                (replace(node.clock, boot_ns=again_ns), node.boot_id, again_ns + SECOND_NS, end_ns),
            ]
        yield node.name, [line for span in spans for line in _notes(r, node, *span, every_ns)]


def _notes(
    r: Random, node: Node, clock: NodeClock, boot_id: str, begin_ns: int, end_ns: int, every_ns: int
) -> Iterator[str]:
    sent = [at - r.randrange(SECOND_NS) for at in range(begin_ns, end_ns, every_ns)]
    told = [*range(begin_ns, end_ns, every_ns * TOGETHER), end_ns]
    # The agent reads its clocks every second; those beside a step are what tells of it.
    beside = [at + off for at, _ in clock.steps for off in (-SECOND_NS // 2, SECOND_NS // 2)]
    for at_ns in sorted({*told, *(at for at in beside if begin_ns < at < end_ns)}):
        note: dict[str, Any] = {"boot_id": boot_id, "clock": _reading(clock, at_ns)}
        if at_ns in told:
            acknowledged = [at for at in sent if at < at_ns - SECOND_NS]
            note["samples"] = [_sample(r, clock, at) for at in acknowledged]
            sent = sent[len(acknowledged) :]
            made_ns = at_ns - SECOND_NS
            around = (clock.raw_ns(made_ns), clock.raw_ns(made_ns + r.randrange(20_000, 80_000)))
            stamp_ns = clock.kernel_ns(made_ns + 10_000) // 1000 * 1000
            note["kernel"] = {"stamp_ns": stamp_ns, "raw_before_ns": around[0] - 1_000, "raw_after_ns": around[1]}
        yield json.dumps(note, separators=(",", ":"))


def _reading(clock: NodeClock, at_ns: int) -> dict[str, int]:
    raw_ns = clock.raw_ns(at_ns)
    return {
        "raw_ns": raw_ns, "mono_ns": raw_ns, "boottime_ns": raw_ns, "wall_ns": clock.wall_ns(at_ns), "width_ns": 2_000,
    }  # fmt: skip


def _sample(r: Random, clock: NodeClock, sent_ns: int) -> dict[str, int]:
    there_ns, back_ns = (
        200_000 + round(r.expovariate(1 / 150_000)) + (r.randrange(2_000_000, 20_000_000) if r.random() < 0.01 else 0)
        for _ in range(2)
    )
    return {
        "t0_ns": clock.raw_ns(sent_ns), "t1_ns": clock.raw_ns(sent_ns + there_ns + back_ns),
        "broker_time_ms": (sent_ns + there_ns) // 1_000_000, "broker_id": 1, "leader_epoch": 0,
    }  # fmt: skip
