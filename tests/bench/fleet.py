"""`make bench ARGS="--only fleet"`: what fleet statistics find in simulated fleets, beside what is true of them.

Seeds are fixed. Parameters, their sources and what is not claimed: docs/fleet-benchmark.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from pipeline.core.fleet.coalesce import CURVE_S, episodes, sensitivity, window_of
from pipeline.core.fleet.lemons import UnitCount, lemons
from pipeline.core.fleet.poisson import garwood
from pipeline.core.fleet.propagation import Propagation, Sighting, propagation
from tests.bench.clock_scenarios import Answers, play
from tests.bench.clocks import Table
from tests.clock_channels import SECOND, Channel, busy, data, quiet
from tests.fleet_simulated import (
    CAUSES,
    KINDS,
    NODES,
    SOONER,
    Cause,
    Faults,
    Fleet,
    Sight,
    chains,
    dated,
    faults,
    lognormal,
    stamped,
)

SEED: Final = 1
WITHIN_NS: Final = 5 * SECOND
CHANNELS: Final[Mapping[str, Channel]] = {"quiet network": quiet, "busy network": busy, "data producer": data}
# Clocks that nobody corrected (ms), and what is taken of clocks of which nothing is claimed.
SKEW_MS: Final = 200.0
UNCLAIMED_MS: Final = 5_000.0
RATES: Final = (2.34, 6.5, 20.0, 45.0)
JUDGED_RATE: Final = 45.0
Q: Final = 0.05
FEW_RATE: Final = 10 / 28 * 1_000
UNLIKE: Final = (0.3, 0.5, 1.0)
MEANS: Final = (0.5, 1, 2, 3, 5, 7.5, 10, 20, 30, 50, 75, 100, 200, 300, 500)
COUNT_POINTS: Final = 2.0


@dataclass(frozen=True)
class Size:
    """How much is simulated: faults of each kind, sources of each cause, fleets of each rate, seconds of beacons."""

    faults: int = 4_000
    sources: int = 1_000
    fleets: int = 100
    beacons_s: int = 900
    lines: int = 1_000_000


def measure(size: Size = Size()) -> Iterator[str]:
    """All rows, each with its target; the last one says what was missed."""
    table = Table()
    yield from coalescing(table, size)
    yield from propagating(table, size)
    yield from sooner(size)
    yield from lemon_nodes(table, size)
    yield from coverage(table)
    yield f"missed: {', '.join(table.missed) or 'none'}"


# --- coalescing -------------------------------------------------------------------------------------------------------


def coalescing(table: Table, size: Size) -> Iterator[str]:
    """Faults that are counted, by kind; the same without the ends of repairs, and by one window for all."""
    yield f"coalescing: about {size.faults} faults of each kind on 448 GPUs in 895 days; counted against true"
    totals = np.zeros(3, dtype=np.int64)
    for name, kind in KINDS.items():
        made = faults(np.random.default_rng([SEED, kind.xid]), kind, size.faults)
        counted = counted_faults(made, kind.xid)
        flat = sensitivity(made.lines, [5])[5]
        totals += [made.count, counted, flat]
        lines = sum(map(len, made.lines.values()))
        figure = f"{_off(counted, made.count):+.2f} %"
        met = abs(_off(counted, made.count)) <= COUNT_POINTS
        yield table.row(f"Xid {name}: {made.count} faults, {lines} lines", figure, "within 2 %", met=met)
        untold = counted_faults(Faults(made.count, made.lines), kind.xid)
        yield (
            f"    5 s for all: {flat / made.count:.2f} times as many; "
            f"no reset or boot told: {_off(untold, made.count):+.1f} %; {_slower(kind.xid, size)}"
        )
        yield f"    by window: {_curve(made)}"
    true, counted, flat = totals.tolist()
    met = abs(_off(counted, true)) <= COUNT_POINTS
    yield table.row(f"all kinds: {true} faults", f"{_off(counted, true):+.2f} %", "within 2 %", met=met)
    yield f"    5 s for all: {flat / true:.2f} times as many"
    yield _speed(size.lines)


def counted_faults(made: Faults, xid: int) -> int:
    """Episodes by the window of the kind."""
    window = window_of("gpu.xid", xid, {})
    return sum(len(episodes(lines, window, made.backs.get(unit, ()))) for unit, lines in made.lines.items())


def _slower(xid: int, size: Size) -> str:
    (kind,) = (one for one in KINDS.values() if one.xid == xid)
    made = faults(np.random.default_rng([SEED, xid]), kind, size.faults, slower=2.0)
    return f"silences twice as long: {_off(counted_faults(made, xid), made.count):+.2f} %"


def _curve(made: Faults) -> str:
    curve = sensitivity(made.lines, CURVE_S, made.backs)
    return ", ".join(f"{window_s} s {episodes_ / made.count:.2f}" for window_s, episodes_ in curve.items())


def _speed(number: int) -> str:
    rng = np.random.default_rng(SEED)
    units = max(1, number // 50)
    times = rng.integers(0, 28 * 86_400 * SECOND, number)
    lines = {str(unit): part.tolist() for unit, part in enumerate(np.array_split(times, units))}
    window = window_of("gpu.xid", 119, {})
    began_s = process_time()
    for one in lines.values():
        episodes(one, window, one[:3])
    counted_s = process_time()
    sensitivity(lines)
    return (
        f"    {number:,} lines of {units:,} units: counted in {counted_s - began_s:.2f} s, "
        f"curve of {len(CURVE_S)} windows in {process_time() - counted_s:.2f} s"
    )


def _off(counted: int, true: int) -> float:
    return 100 * (counted / true - 1)


# --- propagation ------------------------------------------------------------------------------------------------------


class Share(NamedTuple):
    """What really occurred of one cause, and what the table says of it."""

    true: float
    row: Propagation

    @property
    def points(self) -> float:
        """How far off, in points of per cent."""
        return 100 * (self.row.share - self.true)

    @property
    def by_odds(self) -> float:
        """The same of the share that counts what is concurrent by its odds."""
        return 100 * (self.row.by_odds - self.true)


def shares(seen: Sequence[Sight], sightings: Iterable[Sighting], causes: Sequence[Cause]) -> dict[str, Share]:
    """Shares by cause; of pairs that the table does not have, nothing was found."""
    rows = {(row.cause, row.effect): row for row in propagation(sightings, WITHIN_NS)}
    found: dict[str, Share] = {}
    for cause in causes:
        sources = [one.has_effect for one in seen if one.kind == cause.name]
        found[cause.name] = Share(sum(sources) / len(sources), rows[cause.name, cause.effect])
    return found


def propagating(table: Table, size: Size) -> Iterator[str]:
    """Shares under clock skew, by each way that beacons go."""
    yield f"propagation: {size.sources} sources of each cause, {NODES} nodes, effects within {WITHIN_NS // SECOND} s"
    for name, answers in answered(size).items():
        seen = chains(np.random.default_rng([SEED, 2]), CAUSES, size.sources, WITHIN_NS / SECOND)
        for cause, share in shares(seen, dated(seen, answers), CAUSES).items():
            what = f"{name}: {cause} to {share.row.effect}, {share.true:.3f}"
            for rule, points in (("by order", share.points), ("by odds", share.by_odds)):
                met = abs(points) <= COUNT_POINTS
                yield table.row(f"{what}, {rule}", f"{points:+.2f} points", "within 2", met=met)
            yield f"    {_said(share.row)}"
    skews_ms = np.random.default_rng([SEED, 3]).uniform(-SKEW_MS, SKEW_MS, NODES).tolist()
    for name, sightings in (
        (f"clocks off by up to {SKEW_MS:.0f} ms, believed", stamped(seen, skews_ms)),
        (f"the same, give or take {UNCLAIMED_MS / 1e3:.0f} s", stamped(seen, skews_ms, UNCLAIMED_MS)),
    ):
        for cause, share in shares(seen, sightings, CAUSES).items():
            yield f"    {name}: {cause} {share.points:+.1f} points; {_said(share.row)}"


def sooner(size: Size) -> Iterator[str]:
    """How soon an effect on another node may come before clocks cannot order it. Not judged: that is physics."""
    for name, answers in answered(size).items():
        seen = chains(np.random.default_rng([SEED, 4]), SOONER, size.sources, WITHIN_NS / SECOND)
        for cause, share in shares(seen, dated(seen, answers), SOONER).items():
            inside = share.row.followed <= share.true * share.row.sources <= share.row.followed + share.row.concurrent
            yield (
                f"    {name}: {cause} on average {share.points:+.2f} points, by odds {share.by_odds:+.2f}; "
                f"{share.row.concurrent} concurrent, true share {'between' if inside else 'OUTSIDE'}"
            )


def answered(size: Size) -> dict[str, list[Answers]]:
    """What the clocks of all nodes say over the simulated time, by channel."""
    return {name: play(name, channel, SEED, NODES, size.beacons_s, 1).answers for name, channel in CHANNELS.items()}


def _said(row: Propagation) -> str:
    return (
        f"by order {row.share:.3f} [{row.lo:.3f}, {row.hi:.3f}]; same GPU {row.same_unit}, same node {row.same_node}, "
        f"other node {row.other_node}, concurrent {row.concurrent}, as long before {row.preceded}"
    )


# --- lemons and intervals ---------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Means over fleets, and their standard errors. `by_chance`: what `fdr` is if the Poisson p-value alone decides."""

    recall: float
    recall_se: float
    fdr: float
    fdr_se: float
    by_chance: float


def found_lemons(fleet: Fleet, fleets: int) -> Found:
    """Recall and false discoveries, each the mean over so many fleets."""
    recalls, wrong, by_chance = np.zeros(fleets), np.zeros(fleets), np.zeros(fleets)
    for seed in range(fleets):
        counts, true = fleet.counts(np.random.default_rng([seed, 6]))
        units = [UnitCount(unit=str(node), n=n, exposure=fleet.days) for node, n in enumerate(counts)]
        judged = lemons(units, Q)
        called = {int(one.unit) for one in judged if one.is_lemon}
        recalls[seed] = len(called & true) / max(1, len(true))
        wrong[seed] = len(called - true) / max(1, len(called))
        unlikely = stats.false_discovery_control([one.p_value for one in judged]) <= Q
        more = {int(one.unit) for one, called_ in zip(judged, unlikely, strict=True) if called_}
        by_chance[seed] = len(more - true) / max(1, len(more))
    recall_se, fdr_se = (float(one.std() / fleets**0.5) for one in (recalls, wrong))
    return Found(float(recalls.mean()), recall_se, float(wrong.mean()), fdr_se, float(by_chance.mean()))


def _lemon_speed() -> str:
    """A fleet whose nodes all have other exposures costs most: nothing is counted together."""
    rng = np.random.default_rng(SEED)
    counts, _ = Fleet(JUDGED_RATE, unlike=0.5).counts(rng)
    units = [UnitCount(unit=str(i), n=n, exposure=float(rng.uniform(20, 36))) for i, n in enumerate(counts)]
    began_s = process_time()
    lemons(units)
    return f"    {len(units):,} nodes, each with another exposure: {process_time() - began_s:.2f} s"


def lemon_nodes(table: Table, size: Size) -> Iterator[str]:
    """Nodes that fail ten times as often, by how often the others do."""
    yield f"lemons: 2,000 nodes, 20 fail 10 times as often, 28 days, q = 5 %, mean of {size.fleets} fleets"
    for rate in RATES:
        found = found_lemons(Fleet(rate), size.fleets)
        figure, wrong = f"{found.recall:.3f} +- {found.recall_se:.3f}", f"{found.fdr:.3f}"
        if rate == JUDGED_RATE:
            yield table.row(f"{rate} per 1,000 node-days: recall", figure, ">= 0.9", met=found.recall >= 0.9)
            yield table.row(f"{rate} per 1,000 node-days: false discoveries", wrong, "<= 0.05", met=found.fdr <= 0.05)
        else:
            yield f"    {rate} per 1,000 node-days: recall {figure}, false discoveries {wrong}"
    for unlike in UNLIKE:
        found = found_lemons(Fleet(JUDGED_RATE, unlike=unlike), size.fleets)
        what = f"{JUDGED_RATE}, healthy nodes differ by {unlike:.0%}: false discoveries"
        yield table.row(what, f"{found.fdr:.3f} +- {found.fdr_se:.3f}", "<= 0.05", met=found.fdr <= 0.05)
        longer = found_lemons(Fleet(JUDGED_RATE, unlike=unlike, differ=lognormal), size.fleets)
        none = found_lemons(Fleet(JUDGED_RATE, unlike=unlike, share=0.0), size.fleets)
        longer = found_lemons(Fleet(JUDGED_RATE, unlike=unlike, differ=lognormal), size.fleets)
        none = found_lemons(Fleet(JUDGED_RATE, unlike=unlike, share=0.0), size.fleets)
        yield (
            f"    by chance alone {found.by_chance:.3f}; recall {found.recall:.3f} +- {found.recall_se:.3f}; "
            f"without lemons some are called in {none.fdr:.0%} of fleets; if they differ lognormally: "
            f"recall {longer.recall:.3f}, false {longer.fdr:.3f}, by chance alone {longer.by_chance:.3f}"
        )
    yield from small_cohorts(size)
    yield _lemon_speed()


def small_cohorts(size: Size) -> Iterator[str]:
    """One lemon among few nodes that differ, and none. Not judged: so few nodes do not tell how they differ."""
    for nodes in (5, 10, 20, 50):
        for unlike in (0.0, 0.5, 1.0):
            one = found_lemons(Fleet(FEW_RATE, nodes=nodes, share=1 / nodes, unlike=unlike), size.fleets)
            none = found_lemons(Fleet(FEW_RATE, nodes=nodes, share=0.0, unlike=unlike), size.fleets)
            yield (
                f"    {nodes} nodes with 10 failures each that differ by {unlike:.0%}: the lemon is found in "
                f"{one.recall:.0%}; without one some are called in {none.fdr:.0%}, by chance alone {none.by_chance:.0%}"
            )


def coverage(table: Table) -> Iterator[str]:
    """How often Garwood's interval has the true mean in it: summed over all counts, not drawn."""
    worst = min((covered(mean), mean) for mean in MEANS)
    what = f"Garwood 95 %, means of {MEANS[0]} to {MEANS[-1]}: least coverage (at {worst[1]})"
    yield table.row(what, f"{worst[0]:.5f}", ">= 0.95", met=worst[0] >= 0.95)
    yield "    " + ", ".join(f"{mean} {covered(mean):.4f}" for mean in MEANS)


def covered(mean: float) -> float:
    """Probability that the interval of a count with this mean has the mean in it."""
    total = 0.0
    for n in range(int(mean + 12 * mean**0.5) + 30):
        bounds = garwood(n)
        if bounds.lo <= mean and (bounds.hi is None or mean <= bounds.hi):
            total += float(stats.poisson.pmf(n, mean))
    return total
