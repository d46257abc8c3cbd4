"""Exposure by UTC day. Days add up to the whole window, to the ns."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.defects import possible
from pipeline.core.fleet.exposure import exposures
from pipeline.core.fleet.installed import end_of
from pipeline.core.fleet.records import Defect, Exposure, FleetSpan

DAY_NS: Final = 86_400 * 10**9
_EPOCH: Final = date(1970, 1, 1)


class ExposureDay(Struct, frozen=True, kw_only=True):
    """Time at risk on one day, and what in the spans that touch the day cannot be true."""

    day: date
    exposures: list[Exposure]
    defects: list[Defect]


def bounds(day: date) -> tuple[int, int]:
    """[from, to) of a UTC day, in ns since 1970."""
    begin = (day - _EPOCH).days * DAY_NS
    return begin, begin + DAY_NS


def day_of(at_ns: int) -> date:
    """The UTC day of an instant."""
    return datetime.fromtimestamp(at_ns // 10**9, tz=UTC).date()


def by_day(spans: Iterable[FleetSpan], first: date, last: date) -> Iterator[ExposureDay]:
    """Every day from first to last, both included. A span that cannot be true is named once, on the day that it begins
    or the nearest one here.
    """
    good, bad = possible(spans)
    wrong: dict[date, list[Defect]] = defaultdict(list)
    for defect in bad:
        wrong[min(max(day_of(defect.at_ns or 0), first), last)].append(defect)
    held = sorted(good, key=end_of)
    day = first
    while day <= last:
        from_ns, to_ns = bounds(day)
        # What has ended touches no later day; the installed ones of all times say what units there are.
        held = [span for span in held if span.kind == "installed" or end_of(span) > from_ns]
        found, defects = exposures(held, from_ns, to_ns)
        yield ExposureDay(day=day, exposures=found, defects=[*wrong[day], *defects])
        day += timedelta(days=1)
