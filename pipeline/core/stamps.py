"""Time stamps as printed at the start of a line: integers, resolution, and what they leave out (year, zone)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

NS: Final = 1_000_000_000
DAY_S: Final = 86_400
# Stamps without a year are kept as of this year: a leap year, so that 29 February is a date.
PLACEHOLDER_YEAR: Final = 2000

_MONTHS: Final = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6,
    "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}  # fmt: skip
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Stamp(Struct, frozen=True, kw_only=True):
    """One printed time. `ns` is in UTC where `has_zone`, else the printed wall time read as if it were UTC.

    Without a year (`has_year` false) it counts in PLACEHOLDER_YEAR. `resolution_ns` is the size of the last digit that
    can be trusted: the true time is in [ns, ns + resolution_ns). `kind` is the entry of `stamps.toml`.
    """

    ns: int
    resolution_ns: int
    has_year: bool
    has_zone: bool
    kind: str


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


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def stamp_of(groups: Mapping[str, str | None], kind: str, *, keeps_fraction: bool = True) -> Stamp | None:
    """A stamp from the named groups of a pattern of `stamps.toml`; None where they are no possible time."""
    year_text, name = groups.get("year"), groups.get("month_name")
    month = _MONTHS.get(name, 0) if name else _int(groups.get("month"))
    days = days_of(int(year_text) if year_text else PLACEHOLDER_YEAR, month, _int(groups.get("day")))
    hour, minute, second = (_int(groups.get(part)) for part in ("hour", "minute", "second"))
    # 60 is a leap second.
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    zone = zone_offset_s(groups.get("zone"))
    fraction = (groups.get("fraction") or "")[:9] if keeps_fraction else ""
    seconds = days * DAY_S + hour * 3600 + minute * 60 + second - (zone or 0)
    return Stamp(
        ns=seconds * NS + (int(fraction.ljust(9, "0")) if fraction else 0),
        resolution_ns=10 ** (9 - len(fraction)),
        has_year=bool(year_text),
        has_zone=zone is not None,
        kind=kind,
    )


def zone_offset_s(zone: str | None) -> int | None:
    """Seconds east of UTC of `Z`, `UTC`, `+0800` or `+08:00`; None for anything else."""
    if not zone:
        return None
    if zone in {"Z", "UTC"}:
        return 0
    digits = zone[1:].replace(":", "")
    if zone[0] not in "+-" or len(digits) != 4 or not digits.isdecimal():
        return None
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def resolve(
    stamp: Stamp, year: int | None, zone_offset_s: int, hint_unix_ns: int | None = None
) -> tuple[int, int] | None:
    """Unix time and resolution, both in ns. `year` and `zone_offset_s` stand in for what the stamp leaves out.

    Without a year of its own the stamp gets, of the years around `hint_unix_ns` (or else exactly `year`), the one that
    brings it nearest to the hint: a December line read in January is of last year. None where no year is known, or
    where the date does not exist in it.
    """
    ns = stamp.ns
    if not stamp.has_year:
        dated = _nearest(stamp.ns, year, hint_unix_ns)
        if dated is None:
            return None
        ns = dated
    if not stamp.has_zone:
        ns -= zone_offset_s * NS
    return ns, stamp.resolution_ns


def _nearest(ns: int, year: int | None, hint_unix_ns: int | None) -> int | None:
    days, within_day = divmod(ns, DAY_S * NS)
    _, month, day = date_of(days)
    if hint_unix_ns is None:
        found = days_of(year, month, day) if year is not None else None
        return None if found is None else found * DAY_S * NS + within_day
    around = date_of(hint_unix_ns // (DAY_S * NS))[0]
    possible = (days_of(candidate, month, day) for candidate in (around - 1, around, around + 1))
    dated = [candidate * DAY_S * NS + within_day for candidate in possible if candidate is not None]
    return min(dated, key=lambda candidate: abs(candidate - hint_unix_ns), default=None)


def _int(text: str | None) -> int:
    return int(text) if text else 0
