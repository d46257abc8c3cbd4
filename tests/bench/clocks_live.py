"""`make soak-clocks`: agents on this machine with falsified clocks, the real broker and worker; is every bound true?

usage: python -m tests.bench.clocks_live [--seconds 600] [--nodes 16] [--seed 1]

The broker stamps by this machine's wall clock, so the true time of every reading of a falsified clock is known.
"""

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from pipeline.agents.broker import create_topics
from pipeline.agents.topics import topic_plans
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.kafka_jars import fetch_kafka_jars
from schemas.records import ClockSegment, Event, EventBatch
from tests.e2e.fleet import Fleet
from tests.e2e.skewed_fleet import CLUSTER, Truth, start_skewed_fleet
from tests.polling import until

SECOND_NS: Final = 1_000_000_000
_TRUE: Final = re.compile(r"true_ns=(\d+)")


class Checked(Struct, kw_only=True):
    """What was compared with the truth: how often, how often it was outside its bounds, half-widths and errors (us)."""

    checks: int = 0
    outside: int = 0
    half_us: list[float] = field(default_factory=list)
    error_us: list[float] = field(default_factory=list)
    pair_us: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, lo_ns: int, at_ns: int, hi_ns: int, true_ns: int, kind: str) -> None:
        """One more check."""
        self.checks += 1
        self.outside += not lo_ns <= true_ns <= hi_ns
        self.half_us.append((hi_ns - lo_ns) / 2_000)
        self.error_us.append(abs(at_ns - true_ns) / 1_000)
        self.kinds[kind] += 1


def of_segments(segments: Sequence[ClockSegment], truth: Truth) -> Checked:
    """Ten moments of every segment, and the error between two nodes once a second."""
    checked = Checked()
    errors: dict[int, list[float]] = defaultdict(list)
    for segment in segments:
        if segment.broker_id < 0 or segment.cluster != CLUSTER:
            continue
        for tenth in range(10):
            raw_ns = segment.t_from_raw_ns + (segment.t_to_raw_ns - segment.t_from_raw_ns) * tenth // 10
            at_ns = raw_ns + segment.a_ns + segment.b_ppb * (raw_ns - segment.t_from_raw_ns) // SECOND_NS
            true_ns = truth.reference_ns(segment.node, raw_ns)
            checked.add(at_ns + segment.lo_ns, at_ns, at_ns + segment.hi_ns, true_ns, segment.quality)
            if segment.quality == "good":
                errors[true_ns // SECOND_NS].append((at_ns - true_ns) / 1_000)
    for together in errors.values():
        checked.pair_us += [abs(a - b) for a, b in itertools.combinations(together, 2)]
    return checked


def of_events(events: Sequence[Event]) -> Checked:
    """Every line, which says when it was truly written."""
    checked = Checked()
    for event in events:
        said = _TRUE.search(event.body)
        if said is not None and event.aligned_time_unix_nano is not None:
            checked.add(
                event.lo_unix_nano, event.aligned_time_unix_nano, event.hi_unix_nano, int(said[1]), event.quality
            )
    return checked


def rows(name: str, checked: Checked) -> Iterator[str]:
    """The figures for people."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(checked.kinds.items()))
    yield f"{name:<9} {checked.checks} checks ({kinds}), {checked.outside} outside their bounds"
    for what, values in (("half-width", checked.half_us), ("error", checked.error_us), ("pair error", checked.pair_us)):
        if values:
            yield f"          {what:<11} p50 {_at(values, 0.5):8.0f} us   p99 {_at(values, 0.99):8.0f} us"


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(folder: Path, bootstrap: str, *, seconds: float, nodes: int, seed: int) -> tuple[Checked, Checked]:
    """Let so many agents run for so long against a broker, with a worker; what became of segments and events."""
    asyncio.run(create_topics(bootstrap, topic_plans(), replication=1))
    parts = Fleet(folder, bootstrap, "")
    parts.add_worker()
    try:
        with start_skewed_fleet(folder / "agents", bootstrap, count=nodes, seed=seed) as fleet:
            time.sleep(seconds)
            truth = fleet.truth
        until(lambda: parts.records("clock.segments"), timeout_s=60, what="a segment")
        segments = [record for record in parts.records("clock.segments") if isinstance(record, ClockSegment)]
        batches = [record for record in parts.records("events") if isinstance(record, EventBatch)]
    finally:
        parts.stop()
    return of_segments(segments, truth), of_events([event for batch in batches for event in batch.events])


def main() -> None:
    """Run it on a broker of its own; exit code 1 where a bound was not true."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--nodes", type=int, default=16)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rootrank-clocks-") as name:
        broker = KafkaBroker(Path(name), jars_dir=fetch_kafka_jars())
        broker.start()
        try:
            segments, events = measure(
                Path(name), broker.bootstrap, seconds=given.seconds, nodes=given.nodes, seed=given.seed
            )
        finally:
            broker.stop()
    sys.stdout.write(f"{given.nodes} agents for {given.seconds:.0f} s\n")
    for name, checked in (("segments", segments), ("events", events)):
        sys.stdout.write("".join(f"{row}\n" for row in rows(name, checked)))
    raise SystemExit(1 if segments.outside + events.outside or not segments.checks else 0)


if __name__ == "__main__":
    main()
