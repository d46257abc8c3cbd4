"""What a file tells, and local times: which instants a clock on the wall may mean."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pipeline.core.fleet.defects import FIRST_NS, LAST_NS
from pipeline.core.fleet.records import Defect, FleetSpan, JobAttempt

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A day in one of them may lie in 2000 to 2099 in UTC; with years far outside no zone can be reckoned.
_YEARS: Final = (1999, 2100)


class ImportFormatError(Exception):
    """The file is not what it was said to be; the text says what is missing or not known."""


class Told(Struct, frozen=True, kw_only=True):
    """Spans and attempts of a file, and each line that cannot be used. `skipped`: how many lines were left out for
    which good reason.
    """

    spans: list[FleetSpan] = []
    attempts: list[JobAttempt] = []
    defects: list[Defect] = []
    skipped: dict[str, int] = {}

    def range_ns(self) -> tuple[int, int] | None:
        """The first and the last time that is told; None for none."""
        times = [t for s in self.spans for t in (s.from_ns, s.to_ns) if t is not None]
        times += [t for a in self.attempts for t in (a.from_ns, a.to_ns) if t is not None]
        return (min(times), max(times)) if times else None

    def by_kind(self) -> dict[str, int]:
        """How many defects of each kind."""
        return dict(sorted(Counter(defect.kind for defect in self.defects).items()))


def numbered(spans: Sequence[FleetSpan]) -> list[FleetSpan]:
    """The spans with their place in the list as row, counted from 1: what tells several spans a line gives them so."""
    return [replace(span, row=row) for row, span in enumerate(spans, 1)]


def instants(text: str, zone: tzinfo | None) -> list[int]:
    """The instants in ns since 1970 that an ISO time (or whole seconds since 1970) may mean, in order.

    One for most; two for a local time in the hour that comes twice when clocks are put back; for one that clocks skip,
    the one as if they had not. None where it is no time, or has no zone and none is given, or is not in 2000 to 2099.
    """
    if 8 < len(text) < 12 and text.isascii() and text.isdigit():
        return _possible(int(text) * 10**9)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return []
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        return []
    if moment.tzinfo is not None:
        return _possible(_ns(moment))
    if zone is None:
        return []
    first, second = (_ns(moment.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return _possible(first) if first >= second else [*_possible(first), *_possible(second)]


def is_skipped(text: str, zone: tzinfo) -> bool:
    """Whether no clock of the zone ever showed a local time, for clocks were put forward over it."""
    moment = datetime.fromisoformat(text).replace(tzinfo=zone)
    return moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment.replace(tzinfo=None)


def _possible(at_ns: int) -> list[int]:
    return [at_ns] if FIRST_NS <= at_ns < LAST_NS else []


def _ns(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
