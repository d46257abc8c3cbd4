"""Degraded and not failed: a rank or GPU that is slower than all others, for long, before anything breaks.

In synchronous training every rank takes the same time for a step. What tells the slow one is what it does by itself:
the time it computes, the clock of its GPU under load, the width of its PCIe link, and what straggler detectors print.
"""

from collections import Counter
from math import exp
from typing import Final, NamedTuple

import msgspec

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.outliers import OUTLIER
from pipeline.core.derived.peers import MIN_S, Departs, departing, whole
from pipeline.core.derived.scene import Changes, Measured, Scene, as_finding, last_of, name_of
from pipeline.core.order import canonical
from schemas.records import Entity

SLOW: Final = "compare.slow"
# By how much the slow one departs at least. GPUs of one kind at the same power limit differ by some percent, ranks of a
# balanced job by less; data for these bounds is simulated (tests/core/test_stragglers.py).
LEAST_TIME: Final = 1.25
LEAST_CLOCK: Final = 1 / 0.85
LEAST_LINK: Final = 1.2
LEAST_SCORE: Final = 1 / 0.8
# A GPU so much above the median of its peers (both averages in Celsius) is slow by heat.
HOT_CELSIUS: Final = 8.0
# Findings of one kind, the worst first.
MAX_FOUND: Final = 4
_NARROW: Final = 4
# What a GPU says of its own heat, and how long it takes at most where it is ordinary.
_HEAT: Final = ("gpu.clocks_reduced", "gpu.hot")
BRIEF_S: Final = 60
# Reports of a straggler detector that name the same rank: warnings, each of some minutes, and figures of an interval.
MIN_REPORTS: Final = 3
MIN_SPREADS: Final = 6
_REPORTED_SHARE: Final = 0.8


class _Slower(NamedTuple):
    """A measure, by which factor the slow one departs at least, where, when, and how it is said."""

    measure: str
    least: float
    words: str
    above: bool = False
    loaded: bool = False
    state: bool = False


_SLOWER: Final = (
    _Slower("pcie_width", LEAST_LINK, "{0:.0f} PCIe lanes, median of {2} others {1:.0f}", state=True),
    _Slower("pcie_generation", LEAST_LINK, "PCIe generation {0:.0f} under load, median of {2} others {1:.0f}",
            loaded=True),
    _Slower("sm_clock_mhz", LEAST_CLOCK, "SM clock {0:.0f} MHz under load, median of {2} others {1:.0f} MHz",
            loaded=True),
    _Slower("compute_ms", LEAST_TIME, "computes {0:.0f} ms, median of {2} others {1:.0f} ms", above=True),
    _Slower("step_ms", LEAST_TIME, "{0:.0f} ms a step, median of {2} others {1:.0f} ms", above=True),
    _Slower("score", LEAST_SCORE, "performance score {0:.2f}, median of {2} others {1:.2f}"),
)  # fmt: skip
_LABELS: Final = {"heat": "hardware/gpu_thermal", "link": "hardware/pcie", "": "context/telemetry"}


def slower(scene: Scene) -> Changes:
    """The rank or GPU that is slower than its peers by its own measures, persistently."""
    found: dict[str, list[tuple[_Slower, Departs]]] = {}
    for kind in _SLOWER:
        departs = departing(scene, kind.measure, kind.least, above=kind.above, loaded=kind.loaded, state=kind.state)
        for one in departs[:MAX_FOUND]:
            found.setdefault(one.name, []).append((kind, one))
    for name, shown in found.items():
        measures = {kind.measure for kind, _ in shown}
        cause = "link" if measures & {"pcie_width", "pcie_generation"} else "heat" if _is_hot(scene, name) else ""
        # What one line shows is one finding.
        by_item: dict[int, tuple[Resolved, list[str], int]] = {}
        for kind, one in shown:
            item = scene.measured[name].items[kind.measure]
            text = f"{kind.words.format(one.value, one.others, one.peers)}{_lasting(one.seconds)}"
            by_item.setdefault(id(item), (item, [], one.readings))[1].append(text)
        for item, texts, count in by_item.values():
            yield id(item), [item, _finding(scene, item, item.subject, cause, "; ".join(texts), count)]


def narrow(scene: Scene) -> Changes:
    """The one device whose link came up with fewer lanes than it has, as the kernel says when it finds it.

    What more devices say alike is how the machines are built. Of a device that is no rank's GPU only a link with a
    quarter of the lanes or less is no slot that is narrow by design.
    """
    found: dict[tuple[int, int], dict[str, Resolved]] = {}
    for item in scene.named("pcie.degraded"):
        attributes = item.episode.attributes
        lanes, capable = (_lanes(attributes.get(name, "")) for name in ("link", "capable_link"))
        if lanes < capable:
            found.setdefault((lanes, capable), {})[f"{item.subject.node} {item.subject.pci_bus_id}"] = item
    for (lanes, capable), devices in found.items():
        item = next(iter(devices.values()))
        if len(devices) == 1 and (item.subject.rank is not None or lanes * _NARROW <= capable):
            text = f"{lanes} PCIe lanes of {capable}, as of no other device"
            yield id(item), [item, _finding(scene, item, item.subject, "link", text, item.episode.count)]


def _lanes(link: str) -> int:
    lanes = link.rpartition("x")[2]
    return int(lanes) if lanes.isdecimal() and len(lanes) < 3 else 0


def brief(scene: Scene) -> Changes:
    """Moments of heat that were over: the GPU's later readings show none, or the node agent says how short they were.
    Alone they are ordinary.
    """
    for item in scene.named(*_HEAT):
        name, episode = name_of(item.subject), item.episode
        if name not in scene.measured or not _by_heat(item) or episode.end_ns < 0:
            continue
        lasted_ns = episode.end_ns - episode.start_ns
        later = [last_of(other) for other in scene.measured[name].items.values() if other.episode.name not in _HEAT]
        ends_ns = max((event.aligned_time_unix_nano or 0 for event in later), default=0)
        is_short = lasted_ns < BRIEF_S * SECOND_NS or episode.count < MIN_REPORTS
        if (is_short and ends_ns > episode.end_ns + BRIEF_S * SECOND_NS) or _is_said_to_be_short(scene, item):
            said = msgspec.structs.replace(episode.first, attributes={**episode.attributes, "brief": "true"})
            yield id(item), [Resolved(episode=msgspec.structs.replace(episode, first=said), subject=item.subject)]


def _is_said_to_be_short(scene: Scene, item: Resolved) -> bool:
    """Whether the node agent, which tells once that it begins and once that it is over, says that it took moments."""
    name, episode = name_of(item.subject), item.episode
    overs = (
        over.episode.attributes
        for over in scene.named("gpu.over")
        if name_of(over.subject) == name and over.episode.start_ns >= episode.start_ns
    )
    return episode.count < MIN_REPORTS and any(
        f"gpu.{over.get('what')}" == episode.name and int(over.get("lasted_s", BRIEF_S)) < BRIEF_S for over in overs
    )


def reported(scene: Scene) -> Changes:
    """The rank that straggler detectors name again and again."""
    names: Counter[str] = Counter()
    for item in scene.named("train.straggler"):
        for rank in _ranks(item):
            names[rank] += item.episode.count
    for item in scene.named("train.straggler"):
        often = [rank for rank in _ranks(item) if names[rank] >= MIN_REPORTS]
        if often and _ranks(item)[0] == often[0]:
            named, host = scene.rank(int(often[0])), item.episode.attributes.get("host")
            named = msgspec.structs.replace(named, node=named.node or host)
            text = f"named as a straggler {names[often[0]]} times"
            yield id(item), [item, _finding(scene, item, named, "", text, item.episode.count)]
    yield from _slowest(scene)


def _slowest(scene: Scene) -> Changes:
    """Of reports that name the slowest and the fastest of all, who is nearly always the slowest, by much."""
    items = scene.named("train.spread")
    total = sum(item.episode.count for item in items)
    by_rank: dict[str, list[Resolved]] = {}
    for item in items:
        by_rank.setdefault(item.episode.attributes.get("slowest", ""), []).append(item)
    for rank, own in by_rank.items():
        count = sum(item.episode.count for item in own)
        spans = [item.episode.end_ns - item.episode.start_ns for item in own]
        last = max(own, key=lambda item: canonical(last_of(item)))
        if last.episode.readings is None or not rank.isdecimal() or len(rank) > 7:
            continue
        slow, fast = (whole(last.episode.readings, measure) for measure in ("slowest_ms", "fastest_ms"))
        if not slow.count or not fast.count or exp(slow.mean - fast.mean) < LEAST_TIME:
            continue
        if count >= max(MIN_SPREADS, _REPORTED_SHARE * total) and (max(spans) >= MIN_S * SECOND_NS):
            hottest = last_of(last).attributes.get("hottest") == rank
            text = (
                f"the slowest in {count} of {total} reports, {exp(slow.mean):.1f} ms, the fastest {exp(fast.mean):.1f}"
            )
            subject = scene.rank(int(rank))
            yield id(last), [last, _finding(scene, last, subject, "heat" if hottest else "", f"{text} ms", count)]


def _is_hot(scene: Scene, name: str) -> bool:
    """Whether it was hotter than its peers on the whole, or says itself that it is slowed down by heat."""
    own = scene.measured[name]
    if any(_is_of(item, own) for item in scene.named(*_HEAT) if _by_heat(item)):
        return True
    others = [
        exp(whole(one.readings, "temperature_celsius").mean)
        for other, one in scene.measured.items()
        if other != name and "temperature_celsius" in one.readings.sums
    ]
    if not others or "temperature_celsius" not in own.readings.sums:
        return False
    middle = sorted(others)[len(others) // 2]
    return exp(whole(own.readings, "temperature_celsius").mean) - middle >= HOT_CELSIUS


def _by_heat(item: Resolved) -> bool:
    return item.episode.first.label == "hardware/gpu_thermal"


def _is_of(item: Resolved, measured: Measured) -> bool:
    a, b = item.subject, measured.subject
    if a.rank is not None or b.rank is not None:
        return a.rank == b.rank
    return a.node == b.node and (a.pci_bus_id, a.gpu_index) == (b.pci_bus_id, b.gpu_index)


def _lasting(seconds: int) -> str:
    return f", for {seconds // 60} min" if seconds else ""


def _ranks(item: Resolved) -> list[str]:
    """The ranks that a report names, as far as they may be ranks."""
    named = (part.strip() for part in item.episode.attributes.get("ranks", "").split(","))
    return [rank for rank in named if rank.isdecimal() and len(rank) < 8]


def _finding(scene: Scene, item: Resolved, subject: Entity, cause: str, numbers: str, count: int) -> Resolved:
    """A finding with the last line of an item as its evidence. Where another rank fell silent it is no cause."""
    if scene.silent is not None and subject.rank != scene.silent:
        return as_finding(
            item, last_of(item), OUTLIER, subject, role="context", label=_LABELS[cause], count=count,
            attributes={"measure": "speed", "numbers": numbers},
        )  # fmt: skip
    return as_finding(
        item, last_of(item), SLOW, subject, role="cause", label=_LABELS[cause], count=count,
        attributes={"cause": cause, "numbers": numbers},
    )  # fmt: skip
