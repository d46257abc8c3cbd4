"""What stamps leave out (year, date, zone), and what places the boot clock: stated by somebody, or inferred and marked.

A `Dating` travels with the lines as attributes of their source. Who infers it: the reader of a folder, from neighbours
(`pipeline.core.neighbours`); a shipper, from its host; Align, from when lines are read (`ZoneWatch`).
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pipeline.core.stamps import DAY_NS, NS, Stamp, date_of, resolve, stamp_of
from schemas.matching import prefix_named
from schemas.vocabulary import Inferred
from schemas.zones import MAX_ZONE_S, zone_offset_s, zone_text

# Zones are multiples of this.
QUARTER_S: Final = 900
# A line that is followed is read within this after it was written; a clock may be read a little late.
PROMPT_NS: Final = 5 * NS
EARLY_NS: Final = NS
# So many lines, read at moments so far apart, agree on a zone before it is believed.
AGREEING_LINES: Final = 3
APART_NS: Final = NS
# The most digits of what attributes tell: a year, s since 1970, s, and ns since boot, ns since 1970, ns.
_DIGITS: Final = {"time.year": (9,), "time.near": (11,), "time.spread": (9,), "time.boot": (18, 19, 15)}


class BootReading(Struct, frozen=True, kw_only=True):
    """A moment on two clocks of a node: ns since its boot, and its wall clock (UTC), give or take `bound_ns`."""

    boot_ns: int
    wall_ns: int
    bound_ns: int


class Dating(Struct, frozen=True, kw_only=True):
    """What stands in for what the stamps of a source leave out.

    `near_ns`: a time near the first stamp without a year or date; `spread_ns`: how far off a date may be. The zone is
    `zone_s`; where nobody states it, it may as well be one of `other_zones_s`. `boot` is always inferred.
    """

    year: int | None = None
    near_ns: int | None = None
    spread_ns: int = 0
    zone_s: int = 0
    zone_is_stated: bool = False
    other_zones_s: tuple[int, ...] = ()
    boot: BootReading | None = None

    def marks(self, stamp: Stamp) -> tuple[Inferred, ...]:
        """What of the time of a stamp is inferred."""
        marks: list[Inferred] = []
        if not stamp.has_date:
            marks.append("date")
        elif not stamp.has_year and self.year is None:
            marks.append("year")
        if not stamp.has_zone and not self.zone_is_stated:
            marks.append("zone")
        return tuple(marks)

    def slack_ns(self, stamp: Stamp) -> tuple[int, int]:
        """How much earlier and how much later than resolved the time of a stamp may be."""
        spread_ns = 0 if stamp.has_date else self.spread_ns
        if stamp.has_zone or not self.other_zones_s:
            return spread_ns, spread_ns
        # What is further east is earlier.
        zones_s = (self.zone_s, *self.other_zones_s)
        return spread_ns + (max(zones_s) - self.zone_s) * NS, spread_ns + (self.zone_s - min(zones_s)) * NS


NOTHING_SAID: Final = Dating()


def told(attributes: Mapping[str, str]) -> tuple[Dating, list[str]]:
    """The dating that the attributes of a source tell, and what is wrong with them."""
    wrong: list[str] = []

    def numbers(name: str) -> list[int]:
        text = attributes.get(name, "")
        parts, digits = text.split(), _DIGITS[name]
        if len(parts) == len(digits) and all(map(_is_number, parts, digits)):
            return [int(part) for part in parts]
        if text:
            wrong.append(f"{name} = {text[:40]!r} is no number")
        return []

    inferred = attributes.get("time.inferred", "").split(",")
    zone = attributes.get("time.zone")
    zone_s = zone_offset_s(zone)
    if zone is not None and zone_s is None:
        wrong.append(f"time.zone = {zone[:40]!r}; write it as +02:00")
    others = [zone_offset_s(other) for other in attributes.get("time.zones", "").split()]
    year, near, spread, boot = (numbers(name) for name in _DIGITS)
    return Dating(
        year=year[0] if year and "year" not in inferred else None, near_ns=near[0] * NS if near else None,
        spread_ns=spread[0] * NS if spread else 0, zone_s=zone_s or 0,
        zone_is_stated=zone_s is not None and "zone" not in inferred,
        other_zones_s=tuple(other for other in others if other is not None),
        boot=BootReading(boot_ns=boot[0], wall_ns=boot[1], bound_ns=boot[2]) if boot else None,
    ), wrong  # fmt: skip


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


def attributes_of(dating: Dating) -> dict[str, str]:
    """The attributes that tell a dating: `told` the other way round."""
    said: dict[str, str] = {"time.zone": zone_text(dating.zone_s)}
    inferred: list[Inferred] = []
    if dating.year is not None:
        said["time.year"] = str(dating.year)
    if dating.near_ns is not None:
        said["time.near"] = str(dating.near_ns // NS)
        if dating.year is None:
            said["time.year"] = str(date_of(dating.near_ns // DAY_NS)[0])
            inferred.append("year")
    if dating.spread_ns:
        said["time.spread"] = str(dating.spread_ns // NS)
    if not dating.zone_is_stated:
        inferred.append("zone")
    if dating.other_zones_s:
        said["time.zones"] = " ".join(zone_text(zone_s) for zone_s in dating.other_zones_s)
    if dating.boot is not None:
        said["time.boot"] = f"{dating.boot.boot_ns} {dating.boot.wall_ns} {dating.boot.bound_ns}"
        inferred.append("boot")
    if inferred:
        said["time.inferred"] = ",".join(inferred)
    return said


def zone_between(local_ns: int, unix_ns: int, before_ns: int, after_ns: int) -> int | None:
    """The zone in which a local time is up to `before_ns` before or `after_ns` after a moment; None where none is."""
    quarter_ns = QUARTER_S * NS
    ahead_ns = local_ns - unix_ns
    zone_ns = -((after_ns - ahead_ns) // quarter_ns) * quarter_ns
    if zone_ns - ahead_ns > before_ns or abs(zone_ns) > MAX_ZONE_S * NS:
        return None
    return zone_ns // NS


def iso_stamp(text: str) -> Stamp | None:
    """The time with which a text begins, as ISO 8601 writes it; None where it begins with none."""
    found = prefix_named("iso").match(f"{text[:64].split(' ', 1)[0]} ", 0)
    return None if found is None else stamp_of(found.groupdict(), "iso")


class ZoneWatch(Struct, kw_only=True):
    """Learns the zone of a source that is followed: its lines are read as soon as they are written.

    `zone_s` is None as long as the zone that is assumed fits; another is believed once enough lines agree on it.
    """

    zone_s: int | None = None
    candidate_s: int | None = None
    agreeing: int = 0
    read_ns: int = 0

    def hear(self, stamp: Stamp, read_ns: int, assumed_s: int) -> bool:
        """Take a stamp without a zone and when its line was read (unix ns); whether another zone is believed now."""
        if not stamp.has_date or read_ns < self.read_ns + APART_NS:
            return False
        local = resolve(stamp, None, 0, read_unix_ns=read_ns)
        zone_s = None if local is None else zone_between(local[0], read_ns, PROMPT_NS + local[1], EARLY_NS)
        if zone_s is None:
            return False
        self.agreeing = self.agreeing + 1 if zone_s == self.candidate_s else 1
        self.candidate_s, self.read_ns = zone_s, read_ns
        believed_s = None if zone_s == assumed_s else zone_s
        if self.agreeing < AGREEING_LINES or believed_s == self.zone_s:
            return False
        self.zone_s = believed_s
        return True
