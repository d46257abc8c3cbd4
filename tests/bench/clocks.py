"""`make bench-clocks`: how well raw clocks of nodes are told from beacons, beside what others make of the same beacons.

usage: python -m tests.bench.clocks [--quick] [--nodes 16] [--seconds 2400] [--checks 70] [--pairs 2000000] [--no-live]

Scenarios A to E are simulated, with fixed seeds; L is the real producer and a real broker on this machine, and M
simulated with its round trips. Method and what is not claimed: docs/clocks-benchmark.md.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pipeline.core.clocks.track import Track
from tests.bench import clock_faults, clock_producer
from tests.bench.clock_orders import Orders, orders
from tests.bench.clock_scenarios import OURS, Answers, Result, play, worst_growth
from tests.clock_channels import Clock, Floats, beacons, busy, data, quiet

SEED: Final = 1
PAIR_P50_US: Final = {"A": 40, "B": 60, "C": 120}
PAIR_P99_US: Final = {"A": 150, "B": 250, "C": 450}
HALF_WIDTH_MS: Final = {"A": 0.4, "B": 0.7, "C": 1.3}
DECIDED: Final = {"A": ("certain", 0.99), "B": ("probable", 0.99), "C": ("probable", 0.9)}
# With less than this a row is not judged: it could be met or missed by chance.
ENOUGH_CHECKS: Final = 10_000_000
ENOUGH_ORDERS: Final = 1_000_000
ENOUGH_NODE_S: Final = 10_000
_WHAT: Final = {
    "A": "quiet network", "B": "busy network", "C": "data producer", "D": "disciplined nodes, quiet network",
    "M half": "measured round trips, in halves", "M any": "measured round trips, split anywhere",
}  # fmt: skip


class Table:
    """Rows with a target, and how many were missed or too short to judge by."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.too_few: list[str] = []

    def row(self, what: str, figure: str, target: str, *, met: bool, enough: bool = True) -> str:
        """One line; it says neither met nor missed where not `enough` was looked at."""
        judged = "met" if met else "MISSED"
        if not enough:
            judged = "too few"
            self.too_few.append(what)
        elif not met:
            self.missed.append(what)
        return f"  {what:58} {figure:>14}   target {target:14} {judged}"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a few seconds: too little to judge by")
    options.add_argument("--nodes", type=int, default=16)
    options.add_argument("--seconds", type=int, default=2400)
    options.add_argument("--checks", type=int, default=70, help="bounds checked per update")
    options.add_argument("--pairs", type=int, default=2_000_000, help="pairs of events per scenario and band")
    options.add_argument("--no-live", action="store_true", help="without Kafka")
    options.add_argument("--live-seconds", type=float, default=120)
    given = options.parse_args()
    if given.quick:
        given.nodes, given.seconds, given.pairs, given.live_seconds = 3, 300, 20_000, 15
    for line in rows(given):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def rows(given: argparse.Namespace) -> Iterator[str]:
    """Everything, line by line."""
    table, began_s = Table(), time.monotonic()
    if given.quick:
        yield "quick: too short to judge by, most rows say `too few`"
    yield f"{given.nodes} nodes x {given.seconds} s, 1 beacon/s; {sys.version.split()[0]}, one core, seed {SEED}"
    results = []
    for name, channel in (("A", quiet), ("B", busy), ("C", data), ("D", quiet)):
        result = play(name, channel, SEED, given.nodes, given.seconds, given.checks, disciplined=name == "D")
        results.append(result)
        yield from scenario(result, given.pairs, table)
    yield from bounds(results, table)
    yield from cost(results, table)
    yield from steps(given.nodes, table)
    if not given.no_live:
        yield from live(given)
    yield ""
    met = "nothing missed" if table.too_few else "all targets met"
    missed = f"missed: {', '.join(table.missed)}" if table.missed else met
    yield missed
    if table.too_few:
        yield f"too few to judge: {len(table.too_few)} rows"
    yield f"took {time.monotonic() - began_s:.0f} s"


def scenario(result: Result, pairs: int, table: Table) -> Iterator[str]:
    """Errors of all methods; bounds, u99 and orders of ours."""
    name = result.name
    yield ""
    yield f"{name}: {_WHAT[name]}"
    yield f"  {'error, us':24}{'node p50':>12}{'p99':>12}{'pair p50':>12}{'p99':>12}"
    for method in result.answers[0].errors:
        own, apart = errors_of(result.answers, method)
        figures = [*np.quantile(own, [0.5, 0.99]).tolist(), *np.quantile(apart, [0.5, 0.99]).tolist()]
        yield f"  {method:24}" + "".join(f"{figure / 1e3:12.0f}" for figure in figures)
        if method == OURS:
            p50, p99 = figures[2] / 1e3, figures[3] / 1e3
    half = np.concatenate([(one.hi - one.lo) / 2 for one in result.answers])
    h50, h99 = (np.quantile(half, [0.5, 0.99]) / 1e6).tolist()
    enough = result.days * 86_400 >= ENOUGH_NODE_S
    if name in PAIR_P99_US:
        yield table.row(
            f"{name} pair error p50", f"{p50:.0f} us", f"<= {PAIR_P50_US[name]} us", met=p50 <= PAIR_P50_US[name],
            enough=enough,
        )  # fmt: skip
        yield table.row(
            f"{name} pair error p99", f"{p99:.0f} us", f"<= {PAIR_P99_US[name]} us", met=p99 <= PAIR_P99_US[name],
            enough=enough,
        )  # fmt: skip
        most = HALF_WIDTH_MS[name]
        what = f"{name} half-width p50 (p99 {h99:.2f} ms)"
        yield table.row(what, f"{h50:.2f} ms", f"<= {most} ms", met=h50 <= most, enough=enough)
    else:
        yield f"  half-width p50 {h50:.2f} ms, p99 {h99:.2f} ms"
    u99 = float(np.mean(np.concatenate([np.abs(one.errors[OURS]) <= one.u99 for one in result.answers])))
    size = float(np.median(np.concatenate([one.u99 for one in result.answers]))) / 1e3
    least = float(np.quantile(_known([one.errors[OURS] for one in result.answers]), 0.99)) / 1e3
    what = f"{name} errors within u99 (p50 {size:.0f} us; 99 % are within {least:.0f})"
    yield table.row(what, f"{u99:.3%}", ">= 99 %", met=u99 >= 0.99, enough=enough)
    yield from order_rows(name, orders(result.answers, pairs, SEED), table)


def errors_of(answers: Sequence[Answers], method: str) -> tuple[Floats, Floats]:
    """Absolute errors of all nodes, and of all pairs of nodes at the same beacon."""
    length = min(len(one.errors[method]) for one in answers)
    own = [one.errors[method][:length] for one in answers]
    apart = [a - b for a, b in itertools.combinations(own, 2)]
    return _known(own), _known(apart)


def _known(columns: Sequence[Floats]) -> Floats:
    values = np.abs(np.concatenate(columns))
    return values[~np.isnan(values)]


def order_rows(name: str, bands: dict[str, Orders], table: Table) -> Iterator[str]:
    """What is decided of pairs of events, and how often wrongly."""
    yield (
        f"  {'order by true gap':18}{'certain':>9}{'wrong':>8}{'probable':>12}{'wrong':>8}"
        f"{'last sample wrong':>20}{'raw wrong':>11}"
    )
    for band, o in bands.items():
        yield (
            f"  {band:18}{o.certain / o.pairs:9.4f}{o.certain_wrong:8d}{o.probable / o.pairs:12.4f}"
            f"{o.probable_wrong:8d}{o.last_wrong / o.pairs:20.2%}{o.raw_wrong / o.pairs:11.2%}"
        )
    certain, wrong = (sum(getattr(o, field) for o in bands.values()) for field in ("certain", "certain_wrong"))
    yield table.row(
        f"{name} wrong among {certain / 1e6:.1f} M certain orders", str(wrong), "0", met=wrong == 0,
        enough=wrong > 0 or certain >= ENOUGH_ORDERS,
    )  # fmt: skip
    probable, wrong = (sum(getattr(o, field) for o in bands.values()) for field in ("probable", "probable_wrong"))
    rate = wrong / max(probable, 1)
    yield table.row(
        f"{name} wrong among {probable / 1e6:.1f} M probable orders", f"{rate:.1e}", "< 1e-5", met=rate < 1e-5,
        enough=probable >= ENOUGH_ORDERS,
    )  # fmt: skip
    if name in DECIDED:
        rule, least = DECIDED[name]
        share = getattr(bands["1-3 ms"], rule) / bands["1-3 ms"].pairs
        enough = probable >= ENOUGH_ORDERS
        yield table.row(
            f"{name} decided at 1-3 ms, {rule}", f"{share:.4f}", f">= {least}", met=share >= least, enough=enough
        )


def bounds(results: Sequence[Result], table: Table) -> Iterator[str]:
    """Coverage of the certain bounds in A to D."""
    checks, outside = sum(r.checks for r in results), sum(r.outside for r in results)
    epochs, days = sum(r.epochs for r in results), sum(r.days for r in results)
    yield ""
    what = f"A to D: truth outside its certain bound, {checks / 1e6:.1f} M checks"
    # One that is wrong is proof enough.
    enough = outside > 0 or checks >= ENOUGH_CHECKS
    yield table.row(what, str(outside), "0 of >= 10 M", met=outside == 0, enough=enough)
    enough = epochs > 0 or days * 86_400 >= ENOUGH_NODE_S
    yield table.row(f"A to D: false epochs in {days:.1f} node-days", str(epochs), "0", met=epochs == 0, enough=enough)
    rng = np.random.default_rng([SEED, 12345])
    clock, track = Clock(rng, 600), Track()
    for sample in beacons(rng, clock, quiet, 600).samples():
        track.update(sample)
    grown = ", ".join(f"{s} s {worst_growth(track, s) / 1e6:.2f} ms" for s in (1, 10, 60, 300, 600, 3600))
    yield f"  half-width so long after the last beacon (A): {grown}"


def cost(results: Sequence[Result], table: Table) -> Iterator[str]:
    """What an update costs."""
    us = float(np.mean([r.us_per_update for r in results]))
    most = max(r.most_bytes for r in results)
    yield table.row("update + at + close, CPU time", f"{us:.0f} us", "<= 200 us", met=us <= 200)
    yield table.row("10,000 nodes at 0.5 Hz: updates/s on one core", f"{1e6 / us:,.0f}", ">= 5,000", met=us <= 200)
    yield table.row(
        f"state as JSON, most (polygons of up to {max(r.corners for r in results)} corners)", f"{most:,} B", "<= 8 KB",
        met=most <= 8192,
    )  # fmt: skip


def steps(nodes: int, table: Table) -> Iterator[str]:
    """Scenario E."""
    yield ""
    yield "E: faults, 30 minutes each on quiet ways; outside: of answers that are flagged good"
    yield f"  {'':52}{'steps':>7}{'at once':>9}{'later':>7}{'false':>7}{'checks':>9}{'outside':>9}{'flagged':>9}"
    checks = outside = 0
    found = []
    for fault in clock_faults.faults(min(nodes, 8), SEED):
        yield (
            f"  {fault.name:52}{fault.steps:7d}{fault.at_once:9d}{fault.later:7d}{fault.false:7d}{fault.checks:9d}"
            f"{fault.outside:9d}{fault.flagged:9d}"
        )
        if "not claimed" not in fault.name:
            checks, outside = checks + fault.checks, outside + fault.outside
            found.append(fault)
    inside = 1 - outside / checks
    late = sum(f.steps - f.at_once for f in found)
    yield table.row("E truth inside, outside flagged windows", f"{inside:.4%}", ">= 99.99 %", met=inside >= 0.9999)
    what = f"E steps >= 2 ms not found at the first beacon, of {sum(f.steps for f in found)}"
    yield table.row(what, str(late), "0", met=late == 0)


def live(given: argparse.Namespace) -> Iterator[str]:
    """The real producer, and the simulation with its round trips."""
    found = clock_producer.measure(given.live_seconds, 5)
    p50, p99 = (np.quantile(np.abs(found.errors), [0.5, 0.99]) / 1e3).tolist()
    yield ""
    yield (
        f"L: kafka-python to a real broker on this machine ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}), "
        f"{len(found.round_trips)} beacons at 5 Hz"
    )
    yield f"  round trip: {clock_producer.quantiles_ms(found.round_trips)}"
    yield (
        f"  error against wall - raw of the same kernel (known to {found.unsure_ns / 1e3:.1f} us): p50 {p50:.0f}, "
        f"p99 {p99:.0f} us"
    )
    half = float(np.median(found.half_widths)) / 1e6
    yield f"  half-width p50 {half:.2f} ms; outside: {found.outside} of {len(found.errors)}"
    for name, halves in (("M half", True), ("M any", False)):
        channel = clock_producer.resampled(found.round_trips, halves=halves)
        yield from scenario(
            play(name, channel, SEED, given.nodes, min(given.seconds, 1200), given.checks), given.pairs // 4, Table()
        )


if __name__ == "__main__":
    main()
