"""One among its peers: which rank or GPU measures something else than the others do, and for how long."""

from collections.abc import Collection, Iterable, Mapping
from math import exp, log
from statistics import median
from typing import Final, NamedTuple

from pipeline.core.derived.scene import Measured, Scene
from pipeline.core.readings import UNTIMED, Readings, Sum

# Fewer others than this show no rule from which one departs.
MIN_PEERS: Final = 4
# So many times the spread of all (1.4826 times the median of distances is a standard deviation) is no chance.
SPREADS: Final = 6.0
_TO_DEVIATION: Final = 1.4826
# What lasts less long, or shows in fewer readings, is a pause or a first step.
MIN_S: Final = 600
MIN_READINGS: Final = 10
# The mean of a run is so many standard errors away from that of the peers.
CERTAIN: Final = 5.0
# Without times: so many readings.
MIN_UNTIMED: Final = 20
# Of the buckets of a run so many must show it: one that does not costs as much as four that do.
_MISS: Final = 4
# Where more depart, it is how the job is built: stages of a pipeline, nodes of another kind.
SHARE: Final = 16
MIN_NODES: Final = 5
# A GPU whose utilization (the geometric mean of a bucket) is lower is not under load.
LOADED_PERCENT: Final = 30.0

# By number of the bucket what each measures in it.
_Buckets = dict[int, dict[str, Sum]]


class Departs(NamedTuple):
    """Who departs, its value and that of its peers, how many they are, for how long (0 where no line tells a time)."""

    name: str
    value: float
    others: float
    peers: int
    seconds: int
    readings: int


def departing(
    scene: Scene, measure: str, least: float, *, above: bool, loaded: bool = False, state: bool = False
) -> list[Departs]:
    """Who departs from its peers for long enough, by at least the factor `least`; `above` or below them.

    `loaded`: of a GPU counts only what it measures under load. `state`: it does not change from reading to reading, so
    that one of them shows it. Where more than a few depart, nobody does.
    """
    measured = measured_in(scene, measure)
    if len(measured) <= MIN_PEERS:
        return []
    width_s, buckets = _buckets(measured, measure, loaded)
    middles: dict[int, float] = {}
    out: dict[str, set[int]] = {}
    for number, values in buckets.items():
        means = {name: one.mean for name, one in values.items()}
        middles[number], bound = spread(means.values(), log(least))
        for name, mean in means.items():
            if (mean - middles[number] if above else middles[number] - mean) >= bound:
                out.setdefault(name, set()).add(number)
    runs: dict[str, list[int]] = {}
    for name, departs in out.items():
        timed = _longest([(n, n in departs) for n in sorted(buckets) if n != UNTIMED and name in buckets[n]])
        for run in (timed, [UNTIMED] if UNTIMED in departs else []):
            if run and (state or _lasts(name, run, buckets, middles, width_s)):
                runs.setdefault(name, run)
    if not is_few(runs, measured):
        return []
    found = [_said(name, run, buckets, width_s) for name, run in runs.items()]
    return sorted(found, key=lambda one: (-abs(log(one.value / one.others)), one.name))


def measured_in(scene: Scene, measure: str) -> dict[str, Measured]:
    """Who gives a measure: the ranks, where there are enough of them. Other GPUs of their nodes work for others."""
    found = {name: one for name, one in scene.measured.items() if measure in one.readings.sums}
    ranks = {name: one for name, one in found.items() if one.subject.rank is not None}
    return ranks if len(ranks) > MIN_PEERS else found


def is_few(names: Collection[str], measured: Mapping[str, Measured]) -> bool:
    """Whether so few depart that they are the exception: some of many, or those of one node of several."""
    if len(names) <= max(1, len(measured) // SHARE):
        return True
    nodes = {measured[name].subject.node for name in names}
    return len(nodes) == 1 and None not in nodes and len({one.subject.node for one in measured.values()}) >= MIN_NODES


def spread(values: Collection[float], least: float) -> tuple[float, float]:
    """The middle of all, and the distance from it that is no chance: not less than `least`."""
    middle = median(values)
    return middle, max(least, SPREADS * _TO_DEVIATION * median(abs(value - middle) for value in values))


def whole(readings: Readings, measure: str) -> Sum:
    """All readings of a measure."""
    return _sum_of(readings.sums.get(measure, {}).values())


def _sum_of(sums: Iterable[Sum]) -> Sum:
    found = Sum()
    for one in sums:
        found.take(one)
    return found


def _buckets(measured: Mapping[str, Measured], measure: str, loaded: bool) -> tuple[int, _Buckets]:
    """The width of the buckets in seconds, and what all measure in each that has enough of them."""
    alike = Readings(level=max(one.readings.level for one in measured.values()))
    found: _Buckets = {}
    for name, one in measured.items():
        load = one.readings.at_level("utilization_percent", alike.level) if loaded else {}
        for number, value in one.readings.at_level(measure, alike.level).items():
            if not loaded or (number in load and load[number].mean >= log(LOADED_PERCENT)):
                found.setdefault(number, {})[name] = value
    return alike.width_s(), {number: values for number, values in found.items() if len(values) > MIN_PEERS}


def _longest(marks: list[tuple[int, bool]]) -> list[int]:
    """The buckets of the run in which one departs most: at least four of five in it show it."""
    best: list[int] = []
    best_score = score = start = 0
    for place, (_, departs) in enumerate(marks):
        if score <= 0:
            score, start = 0, place
        score += 1 if departs else -_MISS
        if score > best_score:
            best_score, best = score, [number for number, is_out in marks[start : place + 1] if is_out]
    return best


def _lasts(name: str, run: list[int], buckets: _Buckets, middles: Mapping[int, float], width_s: int) -> bool:
    """Whether a run of buckets is no pause and no first step, and no few readings make its mean."""
    own = _sum_of(buckets[number][name] for number in run)
    if abs(own.mean - median(middles[number] for number in run)) < CERTAIN * own.error:
        return False
    if UNTIMED in run:
        return own.count >= MIN_UNTIMED
    return own.count >= MIN_READINGS and _seconds(run, width_s) >= MIN_S


def _seconds(run: list[int], width_s: int) -> int:
    return 0 if UNTIMED in run else (run[-1] - run[0] + 1) * width_s


def _said(name: str, run: list[int], buckets: _Buckets, width_s: int) -> Departs:
    """The numbers of a run of buckets."""
    own = _sum_of(buckets[number][name] for number in run)
    others = median(median(one.mean for other, one in buckets[n].items() if other != name) for n in run)
    peers = max(len(buckets[number]) for number in run) - 1
    return Departs(name, exp(own.mean), exp(others), peers, _seconds(run, width_s), own.count)
