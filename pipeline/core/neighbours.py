"""Infers what stamps leave out from their neighbours: on the same line, in the same file, on the node, in the folder.

A `Sample` is what some lines of one file show of time. From all samples together follows a `Dating` for each file:
where nobody says the year, the date, the zone or when the node was started, who is nearest tells.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core.dating import QUARTER_S, BootReading, Dating, iso_stamp, zone_between
from pipeline.core.parse import ParsedLine
from pipeline.core.stamps import DAY_NS, EARLIEST_NS, LATEST_NS, NS, Stamp, of_epoch, resolve
from pipeline.core.times import BMC, COMPUTED, COMPUTED_NS, KERNEL_CLOCK_PPM, KERNEL_STAMP_NS

# What one in so many stamps of a file shows is a text's own (the date of a data set), not the time of its lines.
RARE: Final = 20
# Writers of one line into two files take this long; on one line the inner stamp may have waited for the outer one.
SAME_LINE_NS: Final = 2 * NS
INNER_WAIT_NS: Final = 60 * NS
# Shorter bodies are said too often to be one and the same line.
TELLING_CHARACTERS: Final = 16
# Files that end and begin within this overlap.
OVERLAP_NS: Final = QUARTER_S * NS
# Readings of one boot agree like this, but for lines from before the log was started; other boots are further away.
AGREEING_NS: Final = 10 * NS
OTHER_BOOT_NS: Final = 600 * NS
# How well the hardware clock is set from which the kernel takes the wall clock when it starts.
HARDWARE_CLOCK_NS: Final = 60 * NS
_AUDIT: Final = "audit("
_AUDIT_CHARACTERS: Final = 80
_HARDWARE_CLOCK: Final = "setting system clock to "
_CANCELLED: Final = " CANCELLED AT "


class Pair(Struct, frozen=True, gc=False):
    """The kernel's stamp (ns since boot) and a stamp of the wall clock, of one moment."""

    boot_ns: int
    wall: Stamp
    bound_ns: int = 0


class Sample(Struct, kw_only=True):
    """What some lines of one file show of time. `node` is empty where nobody knows it.

    `days`: how many stamps are of which day since 1970. `yearless`, `dateless`, `zoneless`: the first and the last
    stamp that leaves it out. `zoned`: first and last moment with a zone. `zones`: those printed; `inner_zones`: those
    of inner stamps, by the outer stamp of their line. `pairs`: moments on both clocks; `has_bare_boot`: stamps of the
    kernel stand alone. `bodies`: by the hash of what a line says, its stamps; None where it is said twice.
    `is_stamped`: a line says in front when it was written.
    """

    name: str
    node: str = ""
    is_application: bool = True
    written_ns: int | None = None
    days: Counter[int] = field(default_factory=Counter)
    yearless: list[Stamp] = field(default_factory=list)
    dateless: list[Stamp] = field(default_factory=list)
    zoneless: list[Stamp] = field(default_factory=list)
    zoned: list[int] = field(default_factory=list)
    zones: Counter[int] = field(default_factory=Counter)
    inner_zones: Counter[int] = field(default_factory=Counter)
    pairs: list[Pair] = field(default_factory=list)
    has_bare_boot: bool = False
    bodies: dict[int, tuple[Stamp | None, int | None] | None] = field(default_factory=dict)
    is_stamped: bool = False

    def add(self, parsed: ParsedLine) -> None:
        """Take one line."""
        stamp, boot_ns = parsed.stamp, parsed.boot_ns
        if stamp is not None and stamp.kind in BMC:
            return
        self._count_day(_inside(parsed.body))
        self.is_stamped = self.is_stamped or stamp is not None or boot_ns is not None
        if stamp is not None:
            self._add_stamp(stamp, parsed.other)
        if boot_ns is not None:
            self.has_bare_boot = self.has_bare_boot or stamp is None
            if stamp is not None:
                self.pairs.append(Pair(boot_ns, stamp))
            self.pairs.extend(_stated_pairs(boot_ns, parsed.body))
        if len(parsed.body) >= TELLING_CHARACTERS and (stamp is not None or boot_ns is not None):
            key = _number(parsed.body)
            self.bodies[key] = None if key in self.bodies else (stamp, boot_ns)

    def _add_stamp(self, stamp: Stamp, other: Stamp | None) -> None:
        self._count_day(stamp)
        if not stamp.has_date:
            _keep_ends(self.dateless, stamp)
        elif not stamp.has_year:
            _keep_ends(self.yearless, stamp)
        if not stamp.has_zone:
            _keep_ends(self.zoneless, stamp)
            return
        self.zones[stamp.zone_s] += 1
        if stamp.has_year:
            self.zoned = [min((stamp.ns, *self.zoned)), max((stamp.ns, *self.zoned))]
        zone_s = None if other is None else _zone_by(other, stamp, INNER_WAIT_NS, 0)
        if zone_s is not None:
            self.inner_zones[zone_s] += 1

    def _count_day(self, stamp: Stamp | None) -> None:
        if stamp is not None and stamp.has_year and EARLIEST_NS <= stamp.ns < LATEST_NS:
            self.days[stamp.ns // DAY_NS] += 1


def _number(body: str) -> int:
    """A number of a text, the same in every process."""
    return int.from_bytes(blake2b(body.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _inside(body: str) -> Stamp | None:
    """A time in the middle of a line: of a step that Slurm cancelled, of a row in torchrun's table of failures."""
    if body.startswith("  time "):
        return iso_stamp(body.partition(": ")[2])
    return iso_stamp(body.partition(_CANCELLED)[2]) if _CANCELLED in body else None


def _keep_ends(ends: list[Stamp], stamp: Stamp) -> None:
    if len(ends) < 2:
        ends.append(stamp)
    else:
        ends[1] = stamp


def _zone_by(local: Stamp, zoned: Stamp, before_ns: int, after_ns: int) -> int | None:
    """The zone of a stamp from up to `before_ns` before or `after_ns` after a stamp with a zone; None where none is."""
    if local.has_zone or not zoned.has_zone or not zoned.has_year:
        return None
    found = resolve(local, None, 0, zoned.ns)
    if found is None:
        return None
    return zone_between(found[0], zoned.ns, before_ns + local.resolution_ns, after_ns + zoned.resolution_ns)


def _stated_pairs(boot_ns: int, body: str) -> Iterator[Pair]:
    """The wall clock as the kernel itself states it: in audit records, and where it sets the clock as it starts."""
    bound_ns, text = 0, ""
    if _AUDIT in body[:_AUDIT_CHARACTERS]:
        text = body.partition(_AUDIT)[2].partition(":")[0]
    elif _HARDWARE_CLOCK in body:
        text, bound_ns = body.partition(_HARDWARE_CLOCK)[2].partition("(")[2].partition(")")[0], HARDWARE_CLOCK_NS
    seconds, _, fraction = text.partition(".")
    stamp = of_epoch(seconds, fraction, "kernel") if (seconds + fraction).isdecimal() and text.isascii() else None
    if stamp is not None:
        yield Pair(boot_ns, stamp, bound_ns)


def infer(samples: Iterable[Sample], *, year: int | None = None, zone_s: int | None = None) -> dict[str, Dating]:
    """The dating of each file, by its name. What somebody states for all, `year` and `zone_s`, nothing overrides."""
    samples = list(samples)
    nodes: dict[str, list[Sample]] = {}
    for sample in samples:
        nodes.setdefault(sample.node or f"file:{sample.name}", []).append(sample)
    everywhere = _sum(sample.days for sample in samples)
    zones = _frequent(_sum(sample.zones for sample in samples))
    stated = Dating(year=year, zone_s=zone_s or 0, zone_is_stated=zone_s is not None)
    found: dict[str, Dating] = {}
    said = {node: _said(group) for node, group in nodes.items()}
    for node, group in nodes.items():
        for sample in group:
            pools = (_days_of_shared_lines(sample, said[node]), sample.days, said[node].days, everywhere)
            dating = _in_a_year(stated, sample, pools)
            found[sample.name] = dating if zone_s is not None else _zoned(dating, sample, said[node], zones)
    spans = {sample.name: _span(sample, found[sample.name]) for sample in samples}
    whole = _around(spans.values())
    for node, group in nodes.items():
        beside = _around(spans[sample.name] for sample in group)
        for sample in group:
            span = spans[sample.name] or beside or whole
            found[sample.name] = _on_a_day(found[sample.name], sample, said[node], found, span)
        found.update(_booted(found, group))
    return found


class _Said(Struct, kw_only=True):
    """What all files of a node say: days, zones, zones of inner stamps of applications, spans of stamps with a zone.

    `dated`, `zoned`: by the hash of what lines say, stamps with a year and their file, and stamps with a zone.
    """

    days: Counter[int]
    zones: Counter[int]
    inner_zones: Counter[int]
    spans: list[list[int]]
    dated: dict[int, tuple[Stamp, str]] = field(default_factory=dict)
    zoned: dict[int, Stamp] = field(default_factory=dict)


def _said(group: list[Sample]) -> _Said:
    said = _Said(
        days=_sum(s.days for s in group), zones=_sum(s.zones for s in group),
        inner_zones=_sum(s.inner_zones for s in group if s.is_application), spans=[s.zoned for s in group if s.zoned],
    )  # fmt: skip
    for sample in group:
        for key, line in sample.bodies.items():
            stamp = None if line is None else line[0]
            if stamp is not None and stamp.has_year:
                said.dated.setdefault(key, (stamp, sample.name))
                if stamp.has_zone:
                    said.zoned.setdefault(key, stamp)
    return said


def _sum(counters: Iterable[Counter[int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _frequent(counter: Counter[int]) -> list[int]:
    most = max(counter.values(), default=0)
    return sorted(value for value, count in counter.items() if count * RARE >= most)


# --- year and date ------------------------------------------------------------------------------------------------


def _in_a_year(dating: Dating, sample: Sample, pools: Iterable[Counter[int]]) -> Dating:
    """With a time near the file's first stamp without a year: by the days that the nearest others show."""
    if not sample.yearless or dating.year is not None:
        return dating
    days = next((frequent for pool in pools if (frequent := _frequent(pool))), [])
    first, last = sample.yearless[0], sample.yearless[-1]
    near_ns = _in_nearest_year(first, days) if days else _before(first, last, sample.written_ns, 0)
    return msgspec.structs.replace(dating, near_ns=near_ns)


def _in_nearest_year(stamp: Stamp, days: list[int]) -> int | None:
    """The time of a stamp in the year that brings it nearest to one of the days; the earlier of two as near."""
    noons_ns = [day * DAY_NS + DAY_NS // 2 for day in days]
    dated = [(abs(found[0] - noon), found[0]) for noon in noons_ns if (found := resolve(stamp, None, 0, noon))]
    return min(dated)[1] if dated else None


def _before(first: Stamp, last: Stamp, written_ns: int | None, zone_s: int) -> int | None:
    """The time of a file's first stamp, if its last one is not from after the file was last written."""
    if written_ns is None or not EARLIEST_NS <= written_ns < LATEST_NS:
        return None
    ended = resolve(last, None, zone_s, read_unix_ns=written_ns)
    if ended is None:
        return None
    # Of days the nearest was taken.
    is_later = not last.has_date and ended[0] > written_ns + OVERLAP_NS
    began = resolve(first, None, zone_s, ended[0] - is_later * DAY_NS)
    return None if began is None else began[0]


def _days_of_shared_lines(sample: Sample, said: _Said) -> Counter[int]:
    """Days of lines of the file that stand with their year in another file of the node."""
    days: Counter[int] = Counter()
    for key, line in sample.bodies.items() if sample.yearless else ():
        if line is not None and line[0] is not None and not line[0].has_year and key in said.dated:
            days[said.dated[key][0].ns // DAY_NS] += 1
    return days


def _span(sample: Sample, dating: Dating) -> list[int]:
    """The first and the last moment that the stamps of a file show with a date."""
    dated = (resolve(s, dating.year, dating.zone_s, dating.near_ns) for s in sample.zoneless if s.has_date)
    return _around([sample.zoned, [found[0] for found in dated if found is not None]])


def _around(spans: Iterable[list[int]]) -> list[int]:
    moments = [ns for span in spans for ns in span]
    return [min(moments), max(moments)] if moments else []


def _on_a_day(dating: Dating, sample: Sample, said: _Said, datings: dict[str, Dating], span: list[int]) -> Dating:
    """With a time near the file's first stamp without a date: on the day that the nearest others leave for it."""
    if not sample.dateless or sample.yearless:
        return dating
    first, last = sample.dateless[0], sample.dateless[-1]
    for key, line in sample.bodies.items():
        if line is not None and line[0] is not None and not line[0].has_date and key in said.dated:
            stamp, name = said.dated[key]
            at_ns = stamp.ns - (0 if stamp.has_zone else datings[name].zone_s * NS)
            # A file is taken to begin less than a day before its first line that stands elsewhere too.
            return msgspec.structs.replace(dating, near_ns=at_ns - (line[0].ns - first.ns) % DAY_NS)
    if not span:
        return msgspec.structs.replace(dating, near_ns=_before(first, last, sample.written_ns, dating.zone_s))
    first_ns = first.ns - (0 if first.has_zone else dating.zone_s * NS)
    lasts_ns = (last.ns - first.ns) % DAY_NS
    earliest_ns = first_ns - (first_ns - span[0] + OVERLAP_NS) // DAY_NS * DAY_NS
    days = (span[1] + OVERLAP_NS - lasts_ns - earliest_ns) // DAY_NS
    if days < 0:
        # It fits no day of the others: it ends before them or begins after them, rather where that is nearer.
        before_ns = earliest_ns - DAY_NS
        near_ns = before_ns if span[0] - before_ns - lasts_ns < earliest_ns - span[1] else earliest_ns
        return msgspec.structs.replace(dating, near_ns=near_ns, spread_ns=DAY_NS)
    return msgspec.structs.replace(dating, near_ns=earliest_ns, spread_ns=days * DAY_NS)


# --- zone ---------------------------------------------------------------------------------------------------------


def _zoned(dating: Dating, sample: Sample, said: _Said, everywhere: list[int]) -> Dating:
    """With the zone that the nearest neighbours tell; with others that are as likely where they leave it open."""
    evidence = [sample.inner_zones, _zones_of_shared_lines(sample, said)]
    if sample.is_application:
        evidence.append(said.inner_zones)
    zone_s = next((zone for zones in evidence if (zone := _agreed(zones)) is not None), None)
    if zone_s is not None:
        return msgspec.structs.replace(dating, zone_s=zone_s)
    beside = _frequent(sample.zones) or _frequent(said.zones)
    if not beside:
        return _among(dating, 0, everywhere)
    fitting = [zone for zone in sorted({0, *beside}) if _fits(dating, sample.zoneless, said.spans, zone)]
    # Who prints in UTC says nothing of the node's own zone; who prints in another says it.
    return _among(dating, next((zone for zone in fitting if zone != 0), 0), fitting or beside)


def _among(dating: Dating, zone_s: int, possible: list[int]) -> Dating:
    others = tuple(sorted({0, *possible} - {zone_s})) if set(possible) - {zone_s} else ()
    return msgspec.structs.replace(dating, zone_s=zone_s, other_zones_s=others)


def _agreed(zones: Counter[int]) -> int | None:
    """The zone of two thirds of the evidence."""
    zone_s, count = min(zones.items(), key=lambda item: (-item[1], item[0]), default=(0, 0))
    return zone_s if count and count * 3 >= zones.total() * 2 else None


def _zones_of_shared_lines(sample: Sample, said: _Said) -> Counter[int]:
    """Zones of the file, by lines that stand with their zone in another file of the node."""
    zones: Counter[int] = Counter()
    for key, line in sample.bodies.items() if sample.zoneless else ():
        if line is None or line[0] is None or key not in said.zoned:
            continue
        mine, theirs = line[0], said.zoned[key]
        slack_ns = SAME_LINE_NS + (COMPUTED_NS if {mine.kind, theirs.kind} & COMPUTED else 0)
        zone_s = _zone_by(mine, theirs, slack_ns, slack_ns)
        if zone_s is not None:
            zones[zone_s] += 1
    return zones


def _fits(dating: Dating, ends: list[Stamp], spans: list[list[int]], zone_s: int) -> bool:
    """Whether stamps, in a zone, are from when others of the node print theirs."""
    found = [resolve(stamp, dating.year, zone_s, dating.near_ns) for stamp in ends]
    times_ns = [each[0] for each in found if each is not None]
    return any(
        min(times_ns) - OVERLAP_NS <= last and first <= max(times_ns) + OVERLAP_NS
        for first, last in (spans if times_ns else ())
    )


# --- the boot clock -----------------------------------------------------------------------------------------------


def _booted(datings: dict[str, Dating], group: list[Sample]) -> dict[str, Dating]:
    """With a moment on both clocks for the files of a node in which the kernel's stamps stand alone."""
    own = {s.name: _readings(s.pairs, datings[s.name]) for s in group}
    walls: dict[int, tuple[Stamp, Dating]] = {}
    for sample in group:
        for key, said in sample.bodies.items():
            if said is not None and said[0] is not None:
                walls[key] = said[0], datings[sample.name]
    found: dict[str, Dating] = {}
    for sample in group:
        if sample.has_bare_boot:
            boot = _agreeing(own[sample.name]) or _agreeing(_shared_readings(sample, walls))
            boot = boot or _agreeing([each for readings in own.values() for each in readings], of_one_boot=True)
            found[sample.name] = msgspec.structs.replace(datings[sample.name], boot=boot)
    return found


def _shared_readings(sample: Sample, walls: dict[int, tuple[Stamp, Dating]]) -> list[BootReading]:
    """By lines that stand with their wall time in another file of the node."""
    readings = []
    for key, said in sample.bodies.items():
        if said is not None and said[0] is None and said[1] is not None and key in walls:
            stamp, dating = walls[key]
            readings += _readings([Pair(said[1], stamp)], dating)
    return readings


def _readings(pairs: list[Pair], dating: Dating) -> list[BootReading]:
    """Pairs with the wall clock in UTC; without those of which the zone or date is not sure."""
    readings = []
    for pair in pairs:
        sure = dating.slack_ns(pair.wall) == (0, 0)
        found = resolve(pair.wall, dating.year, dating.zone_s, dating.near_ns) if sure else None
        if found is not None and EARLIEST_NS <= found[0] < LATEST_NS:
            # Both stamps are cut, each at its last digit.
            bound_ns = pair.bound_ns + KERNEL_STAMP_NS + (found[1] + 1) // 2
            bound_ns += COMPUTED_NS if pair.wall.kind in COMPUTED else 0
            readings.append(BootReading(boot_ns=pair.boot_ns, wall_ns=found[0] + found[1] // 2, bound_ns=bound_ns))
    return readings


def _agreeing(readings: list[BootReading], *, of_one_boot: bool = False) -> BootReading | None:
    """The last of the readings that most agree with; its bound is how far the others are off, beyond what crystals are.

    With `of_one_boot` there is none where the readings are of several boots.
    """
    sharp = [each for each in readings if each.bound_ns < HARDWARE_CLOCK_NS] or readings
    began_ns = sorted((each.wall_ns - each.boot_ns, each.boot_ns, each.bound_ns) for each in sharp)
    groups: list[list[tuple[int, int, int]]] = []
    for each in began_ns:
        if not groups or each[0] - groups[-1][-1][0] > AGREEING_NS:
            groups.append([])
        groups[-1].append(each)
    if not groups or (of_one_boot and groups[-1][-1][0] - groups[0][0][0] > OTHER_BOOT_NS):
        return None
    # Of equal groups the first: lines from before the log was started are stamped late.
    most = max(groups, key=len)
    began, boot_ns, bound_ns = max(most, key=lambda each: (each[1], each[0]))
    off_ns = max(abs(each[0] - began) - abs(each[1] - boot_ns) * KERNEL_CLOCK_PPM // 1_000_000 for each in most)
    return BootReading(boot_ns=boot_ns, wall_ns=began + boot_ns, bound_ns=bound_ns + off_ns)
