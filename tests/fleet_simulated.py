"""Simulated fleets of which everything is known: faults and the lines that tell of them, errors that cause others on
nodes whose clocks differ, nodes that fail more often than the rest. All from one seed each.

No raw Xid logs of a data centre are public. Where a study gives a figure it is named beside the parameter; the others
are assumptions, and docs/fleet-benchmark.md says which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.core.fleet.propagation import Sighting
from schemas.records import Event, Printer
from tests.bench.clock_scenarios import OURS, Answers
from tests.clock_channels import MS, SECOND

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0
BEGIN_NS: Final = 1_772_323_200 * SECOND
# NCSA Delta's A100 part (arXiv 2503.11901): 448 GPUs for 895 days.
GPUS: Final = 448
DAYS: Final = 895
# Few GPUs have most errors: at this shape of a gamma distribution the worst of 448 has some 4 % of them. (On Summit the
# worst of 27,648 had 10.5 % of all double bit errors.)
UNEVEN: Final = 0.2
MOST_LINES: Final = 2_000

Gaps = Callable[[np.random.Generator], float]


def _lognormal(median_s: float, sigma: float) -> Gaps:
    return lambda rng: float(median_s * np.exp(rng.normal(0, sigma)))


# --- faults, and the lines that repeat them ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """How faults of one kind are told: silences between lines, how many lines, and until when.

    `lines`: mean number (geometric); 0: until the unit is back. `back_s`: how long until it is; None: it is not taken
    out of service. `again`: the share that has another fault, `again_s` after this one on average.
    """

    xid: int
    gap: Gaps
    lines: float = 0.0
    back_s: Gaps | None = None
    again: float = 0.2
    again_s: float = HOUR_S


def _rpc_loop(rng: np.random.Generator) -> float:
    """The driver gives up a call after 6 s. Of the four gaps of a public log two are 6 s, the others 162 and 181 s."""
    return 6.0 + float(rng.exponential(0.01)) if rng.random() < 0.5 else _lognormal(170, 0.35)(rng)


def _memory(rng: np.random.Generator) -> float:
    """Errors come in runs, and again whenever the bad page is touched."""
    return float(rng.exponential(1.0)) if rng.random() < 0.8 else _lognormal(600, 1.5)(rng)


KINDS: Final[Mapping[str, Kind]] = {
    "31 (MMU)": Kind(31, _lognormal(0.2, 1.0), lines=4, again=0.3, again_s=600),
    "74 (NVLink)": Kind(74, _lognormal(5, 1.0), lines=3, again=0.66),  # recurs on the same GPU: Delta, v1
    "119 (GSP)": Kind(119, _rpc_loop, lines=5, back_s=_lognormal(HOUR_S, 1.0)),
    "48 (DBE)": Kind(48, _lognormal(600, 1.5), lines=3, back_s=_lognormal(2 * HOUR_S, 1.5)),
    "95 (uncontained)": Kind(95, _memory, back_s=_lognormal(2 * HOUR_S, 1.5)),
    "79 (off the bus)": Kind(79, _lognormal(60, 0.5), lines=4, back_s=_lognormal(HOUR_S, 1.5)),
}


@dataclass
class Faults:
    """Faults of one kind in a fleet: how many there truly were, their lines and the ends of their repairs, by unit."""

    count: int = 0
    lines: dict[str, list[int]] = field(default_factory=dict)
    backs: dict[str, list[int]] = field(default_factory=dict)


def faults(rng: np.random.Generator, kind: Kind, count: int, slower: float = 1.0) -> Faults:
    """About so many faults over the fleet. `slower`: by how much all silences between lines are longer."""
    made = Faults()
    shares = rng.gamma(UNEVEN, size=GPUS)
    numbers = rng.multinomial(round(count * (1 - kind.again)), shares / shares.sum())
    for unit, number in enumerate(numbers.tolist()):
        lines_s: list[float] = []
        backs_s: list[float] = []
        free_s = 0.0
        for begin_s in np.sort(rng.uniform(0, DAYS * DAY_S, number)).tolist():
            at_s = begin_s
            while at_s >= free_s:  # what is broken does not break
                told_s, free_s = _told(rng, kind, at_s, slower)
                lines_s += told_s
                backs_s += [free_s] if kind.back_s else []
                made.count += 1
                if rng.random() >= kind.again:
                    break
                at_s = max(free_s, told_s[-1]) + float(rng.exponential(kind.again_s))
        if lines_s:
            made.lines[str(unit)] = [BEGIN_NS + round(one * SECOND) for one in lines_s]
            made.backs[str(unit)] = sorted(BEGIN_NS + round(one * SECOND) for one in backs_s)
    return made


def _told(rng: np.random.Generator, kind: Kind, begin_s: float, slower: float) -> tuple[list[float], float]:
    """The lines of one fault, and when its unit is back (at its beginning, where it was never away)."""
    back_s = begin_s + kind.back_s(rng) if kind.back_s else begin_s
    number = int(rng.geometric(1 / kind.lines)) if kind.lines else MOST_LINES
    told_s = [begin_s]
    while len(told_s) < number:
        at_s = told_s[-1] + slower * kind.gap(rng)
        if kind.back_s and at_s >= back_s:
            break
        told_s.append(at_s)
    return told_s, back_s


# --- errors that cause others, on nodes whose clocks differ -----------------------------------------------------------

Where = Literal["unit", "node", "other"]
NODES: Final = 16
NODES_OF_JOB: Final = 8
GPUS_OF_NODE: Final = 8
# Sources are far apart beside the window, as on a fleet; what else happens is in between, at this rate.
APART_S: Final = 300.0
OTHERS_PER_S: Final = 1 / 300


@dataclass(frozen=True)
class Cause:
    """One kind of error, which share of it has an effect, where, and how long after it on average."""

    name: str
    effect: str
    where: Where
    share: float
    delay_ms: float


CAUSES: Final = (
    Cause("xid 122", "xid 31", "unit", 0.82, 50),  # PMU to MMU: 82 %, 0.05 s (Delta, v1)
    Cause("xid 119", "gpu.error_state", "unit", 0.99, 50),  # GSP: 99 % (Delta)
    Cause("xid 74", "xid 74", "node", 0.14, 50),  # NVLink, to a neighbour: 14 % (Delta, v1)
    Cause("nvswitch.sxid", "nvlink.error", "other", 0.42, 50),  # between GPUs: 42 % (Delta, v4); two nodes: assumed
    Cause("nic.down", "nccl.error", "other", 0.63, 20),  # assumed
)
# How soon an effect may come before clocks cannot tell it from its cause (ms, assumed).
SOONER: Final = tuple(
    Cause(f"after {delay_ms} ms", f"effect {delay_ms}", "other", 0.5, delay_ms) for delay_ms in (50, 20, 10, 5, 2, 1)
)


class Sight(NamedTuple):
    """An error at its true time (s), and whether one that it caused came within the window."""

    kind: str
    node: int
    gpu: int
    true_s: float
    has_effect: bool = False


def chains(rng: np.random.Generator, causes: Sequence[Cause], sources: int, within_s: float) -> list[Sight]:
    """So many sources of each kind with their effects, and as many effects that nothing caused. Of all sources, a
    tenth comes shortly after an error of the kind that others of them cause: the order must tell.
    """
    seen: list[Sight] = []
    at_s = 0.0
    for number in rng.permutation(len(causes) * sources).tolist():
        cause = causes[number % len(causes)]
        at_s += APART_S * float(rng.uniform(0.5, 1.5))
        node, gpu = int(rng.integers(NODES)), int(rng.integers(GPUS_OF_NODE))
        delay_s = float(rng.exponential(cause.delay_ms)) / 1e3
        has_effect = bool(rng.random() < cause.share)
        seen.append(Sight(cause.name, node, gpu, at_s, has_effect and delay_s <= within_s))
        if has_effect:
            seen.append(Sight(cause.effect, *_beside(rng, cause.where, node, gpu), at_s + delay_s))
        if cause.effect != cause.name and rng.random() < 0.1:
            before_s = float(rng.exponential(cause.delay_ms)) / 1e3
            seen.append(Sight(cause.effect, *_beside(rng, "other", node, gpu), at_s - before_s))
    for cause in causes:
        for when_s in rng.uniform(0, at_s, rng.poisson(at_s * OTHERS_PER_S / len(causes))).tolist():
            seen.append(Sight(cause.effect, int(rng.integers(NODES)), int(rng.integers(GPUS_OF_NODE)), when_s))
    return sorted(seen, key=lambda one: one.true_s)


def _beside(rng: np.random.Generator, where: Where, node: int, gpu: int) -> tuple[int, int]:
    """A GPU that an error gets to: this one, another of the node, or one of another node of the job."""
    if where == "unit":
        return node, gpu
    if where == "node":
        return node, (gpu + int(rng.integers(1, GPUS_OF_NODE))) % GPUS_OF_NODE
    first = node // NODES_OF_JOB * NODES_OF_JOB
    other = first + (node - first + int(rng.integers(1, NODES_OF_JOB))) % NODES_OF_JOB
    return other, int(rng.integers(GPUS_OF_NODE))


def dated(seen: Sequence[Sight], answers: Sequence[Answers]) -> list[Sighting]:
    """As the clocks of the nodes let us date them: what the estimator answered in a simulation of beacons.

    Stamps of the kernel are whole microseconds of a clock of the node's own.
    """
    made: list[Sighting] = []
    for offset, one in enumerate(seen):
        clock = answers[one.node]
        true_ns = BEGIN_NS + round(one.true_s * SECOND)
        moment = int(one.true_s) % len(clock.lo)
        event = Event(
            event_id=str(offset), name=one.kind, node=f"node{one.node}", source="kmsg", generation="0", offset=offset,
            body="", clock_id=f"node{one.node}/boot", raw_ns=true_ns // 1_000 * 1_000, resolution_ns=1_000,
            aligned_time_unix_nano=true_ns + round(float(clock.errors[OURS][moment])),
            lo_unix_nano=true_ns - 1_000 + int(np.floor(clock.lo[moment])),
            hi_unix_nano=true_ns + 1_000 + int(np.ceil(clock.hi[moment])), u99_ns=int(clock.u99[moment]),
            reference_broker=1, quality="good", printer=Printer(node=f"node{one.node}"),
        )  # fmt: skip
        made.append(_sighting(one, event))
    return made


def stamped(seen: Sequence[Sight], skews_ms: Sequence[float], bound_ms: float = 0.0) -> list[Sighting]:
    """As the nodes' own clocks stamp them: taken at their word, or give or take a bound."""
    made: list[Sighting] = []
    for offset, one in enumerate(seen):
        at_ns = BEGIN_NS + round(one.true_s * SECOND) + round(skews_ms[one.node] * MS)
        event = Event(
            event_id=str(offset), name=one.kind, node=f"node{one.node}", source="kern.log", generation="0",
            offset=offset, body="", clock_id=f"node{one.node}/wall", raw_ns=at_ns, aligned_time_unix_nano=at_ns,
            lo_unix_nano=at_ns - round(bound_ms * MS), hi_unix_nano=at_ns + round(bound_ms * MS),
            reference_broker=1, printer=Printer(node=f"node{one.node}"),
        )  # fmt: skip
        made.append(_sighting(one, event))
    return made


def _sighting(one: Sight, event: Event) -> Sighting:
    groups = (f"job {one.node // NODES_OF_JOB}",)
    return Sighting(kind=one.kind, unit=f"node{one.node}/{one.gpu}", node=f"node{one.node}", groups=groups, event=event)


# --- nodes that fail more often ---------------------------------------------------------------------------------------


# How rates of nodes differ around a mean of 1, given their coefficient of variation and how many nodes there are.
Differ = Callable[[np.random.Generator, float, int], NDArray[np.float64]]


def gamma(rng: np.random.Generator, cv: float, nodes: int) -> NDArray[np.float64]:
    """What the fit of lemons takes for granted."""
    return rng.gamma(cv**-2, cv**2, nodes)


def lognormal(rng: np.random.Generator, cv: float, nodes: int) -> NDArray[np.float64]:
    """The same spread with a longer tail: at 100 % one node of 1,400 has ten times the mean rate, not one of 22,000."""
    variance = np.log1p(cv**2)
    return rng.lognormal(-variance / 2, variance**0.5, nodes)


@dataclass(frozen=True)
class Fleet:
    """A fleet of which a share fails so many times as often. `rate` is of the others, per 1,000 node-days.

    `unlike`: coefficient of variation of the healthy nodes' own rates; 0: they are all alike.
    """

    rate: float
    nodes: int = 2_000
    share: float = 0.01
    times: float = 10.0
    days: float = 28.0
    unlike: float = 0.0
    differ: Differ = gamma

    def counts(self, rng: np.random.Generator) -> tuple[list[int], set[int]]:
        """Failures of each node, and which ones are the lemons."""
        lemons = set(rng.choice(self.nodes, round(self.nodes * self.share), replace=False).tolist())
        expected = np.full(self.nodes, self.rate / 1_000 * self.days)
        if self.unlike:
            expected *= self.differ(rng, self.unlike, self.nodes)
        expected[list(lemons)] = self.rate / 1_000 * self.days * self.times
        return rng.poisson(expected).tolist(), lemons
