"""Time stamps as printed at the start of a line: integers, resolution, and what they leave out (year, zone)."""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import Struct

from schemas.zones import zone_offset_s

NS: Final = 1_000_000_000
DAY_S: Final = 86_400
DAY_NS: Final = DAY_S * NS
# A stamp outside these years is a clock that was never set, not a time.
EARLIEST_NS: Final = 1_104_537_600 * NS  # 2005-01-01
LATEST_NS: Final = 3_786_912_000 * NS  # 2090-01-01
# So far away is the next 29 February at most.
LEAP_YEARS: Final = 8
# Stamps without a year are kept as of this year: a leap year, so that 29 February is a date.
PLACEHOLDER_YEAR: Final = 2000

# Stamps with a date but no year are in PLACEHOLDER_YEAR, those without a date near 1970-01-01.
_WITH_DATE_NS: Final = 20 * 365 * DAY_NS
# What a count since 1970 counts, by its number of digits.
_EPOCH_UNITS: Final = {10: NS, 13: 1_000_000, 16: 1_000, 19: 1}
MAX_DIGITS: Final = 20

# journalctl writes the month in the language of whoever calls it: names of the C library's languages, without the dot.
_MONTH_NAMES: Final = (
    "Jan jan janv ene gen sty янв", "Feb feb févr fev lut фев", "Mar mar mars mrt Mär mär мар",
    "Apr apr avril april abr kwi апр", "May may Mai mai mei mag maj май мая", "Jun jun juin juni giu cze июн",
    "Jul jul juil juli lug lip июл", "Aug aug août ago sie авг", "Sep sep sept set wrz сен",
    "Oct oct Okt okt ott out paź окт", "Nov nov lis ноя", "Dec dec Dez dez déc dic des gru дек",
)  # fmt: skip
_MONTHS: Final = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Stamp(Struct, frozen=True, kw_only=True, gc=False):
    """One printed time. `ns` is in UTC where `has_zone`, else the printed wall time read as if it were UTC.

    `zone_s`: the printed zone, in seconds east of UTC. Without a year (`has_year` false) it counts in PLACEHOLDER_YEAR;
    without a date it is a time on 1970-01-01. `resolution_ns` is the size of the last digit that can be trusted: the
    true time is in [ns, ns + resolution_ns). `kind` is the entry of `stamps.toml`.
    """

    ns: int
    resolution_ns: int
    has_year: bool
    has_zone: bool
    kind: str
    zone_s: int = 0

    @property
    def has_date(self) -> bool:
        """Whether it says the day."""
        return self.has_year or self.ns >= _WITH_DATE_NS

    @property
    def said(self) -> tuple[bool, bool, bool]:
        """How much it says: of nested stamps the one that says more counts."""
        return self.has_zone, self.has_year, self.has_date


@lru_cache(maxsize=4096)
def days_of(year: int, month: int, day: int) -> int | None:
    """Days from 1970-01-01 to a Gregorian date, or None where there is no such date or it is outside 1970-2200."""
    if not (1970 <= year <= 2200 and 1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]):
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2 and day == 29 and not leap:
        return None
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


@lru_cache(maxsize=4096)
def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def trusted_digits(fraction: str) -> int:
    """How many digits of a fraction were counted: who counts ms pads them (torch prints `%(msecs)03d000`)."""
    digits = len(fraction)
    while digits in (6, 9) and fraction.endswith("000", 0, digits):
        digits -= 3
    return digits


def stamp_of(groups: Mapping[str, str | None], kind: str, *, keeps_fraction: bool = True) -> Stamp | None:
    """A stamp from the named groups of a pattern of `stamps.toml`; None where they are no possible time."""
    fraction = (groups.get("fraction") or "")[:9] if keeps_fraction else ""
    epoch = groups.get("epoch") or groups.get("epoch_s")
    if epoch:
        return of_epoch(epoch, fraction, kind)
    days, has_year = _days(groups), bool(groups.get("year") or groups.get("year_short"))
    hour, minute, second = (_int(groups.get(part)) for part in ("hour", "minute", "second"))
    half = groups.get("half")
    if half:
        hour = hour % 12 + 12 * (half == "PM") if 1 <= hour <= 12 else 24
    # 60 is a leap second.
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    zone_s = zone_offset_s(groups.get("zone"))
    seconds = days * DAY_S + hour * 3600 + minute * 60 + second - (zone_s or 0)
    return Stamp(
        ns=seconds * NS + (int(fraction.ljust(9, "0")) if fraction else 0),
        resolution_ns=10 ** (9 - trusted_digits(fraction)) if "second" in groups else 60 * NS,
        has_year=has_year, has_zone=zone_s is not None, kind=kind, zone_s=zone_s or 0,
    )  # fmt: skip


def of_epoch(digits: str, fraction: str, kind: str) -> Stamp | None:
    """A count since 1970 in s, ms, us or ns by its number of digits; None where that is no time of these decades.

    `fraction` is what stands behind the point, in the same unit.
    """
    unit_ns = _EPOCH_UNITS.get(len(digits))
    if unit_ns is None:
        return None
    kept = fraction[: len(str(unit_ns)) - 1]
    last_ns = unit_ns // 10 ** len(kept)
    ns = int(digits) * unit_ns + (int(kept) * last_ns if kept else 0)
    if not EARLIEST_NS <= ns < LATEST_NS:
        return None
    return Stamp(ns=ns, resolution_ns=last_ns, has_year=True, has_zone=True, kind=kind)


def of_number(value: object) -> Stamp | None:
    """`of_epoch` of what a JSON key holds: an integer, a decimal, or their digits as text; None for anything else."""
    if isinstance(value, Decimal):
        # An exponent can be larger than memory.
        value = f"{value:f}" if abs(value.adjusted()) < MAX_DIGITS else ""
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    digits, _, fraction = text[: 2 * MAX_DIGITS].partition(".")
    if not (digits + fraction).isascii() or not (digits + fraction).isdigit():
        return None
    return of_epoch(digits, fraction, "json")


def _days(groups: Mapping[str, str | None]) -> int | None:
    if groups.get("day") is None:
        return 0
    year, short, name = groups.get("year"), groups.get("year_short"), groups.get("month_name")
    month = _MONTHS.get(name.removesuffix("."), 0) if name else _int(groups.get("month"))
    return days_of(int(year) if year else 2000 + int(short) if short else PLACEHOLDER_YEAR, month, _int(groups["day"]))


def resolve(
    stamp: Stamp,
    year: int | None,
    zone_offset_s: int,
    hint_unix_ns: int | None = None,
    *,
    read_unix_ns: int | None = None,
) -> tuple[int, int] | None:
    """Unix time and resolution, both in ns. `year` and `zone_offset_s` stand in for what the stamp leaves out.

    Without a year of its own the stamp gets the last one in which it is not from after it was read (`read_unix_ns`,
    give or take a day), else of the years around `hint_unix_ns` the one that brings it nearest to the hint (a December
    line beside January is of last year), else exactly `year`. Without a date it gets the day nearest to the hint, or to
    when it was read. None where nothing is known of the year or day, or where the date does not exist in it.
    """
    shift_ns = 0 if stamp.has_zone else zone_offset_s * NS
    if stamp.has_year:
        return stamp.ns - shift_ns, stamp.resolution_ns
    if not stamp.has_date:
        near_ns = hint_unix_ns if hint_unix_ns is not None else read_unix_ns
        if near_ns is None:
            return None
        ns = stamp.ns - shift_ns
        return ns + (near_ns - ns + DAY_NS // 2) // DAY_NS * DAY_NS, stamp.resolution_ns
    local_ns = _in_year(stamp.ns, shift_ns, year, hint_unix_ns, read_unix_ns)
    return None if local_ns is None else (local_ns - shift_ns, stamp.resolution_ns)


def _in_year(ns: int, shift_ns: int, year: int | None, hint_ns: int | None, read_ns: int | None) -> int | None:
    """`ns` in another year than the placeholder; `shift_ns` is how far it is ahead of UTC."""
    days, within_ns = divmod(ns, DAY_NS)
    _, month, day = date_of(days)
    near_ns = read_ns if read_ns is not None else hint_ns
    if near_ns is None:
        found = days_of(year, month, day) if year is not None else None
        return None if found is None else found * DAY_NS + within_ns
    dated = [began_ns + within_ns for began_ns in _around(date_of(near_ns // DAY_NS)[0], month, day)]
    if read_ns is not None:
        return max((each for each in dated if each - shift_ns <= read_ns + DAY_NS), default=None)
    return min(dated, key=lambda each: abs(each - shift_ns - near_ns), default=None)


@lru_cache(maxsize=4096)
def _around(year: int, month: int, day: int) -> tuple[int, ...]:
    """When (ns since 1970) a day of the year begins in a year and in those around it in which it exists."""
    reach = LEAP_YEARS if (month, day) == (2, 29) else 1
    possible = (days_of(candidate, month, day) for candidate in range(year - reach, year + reach + 1))
    return tuple(days * DAY_NS for days in possible if days is not None)


def _int(text: str | None) -> int:
    return int(text) if text else 0
