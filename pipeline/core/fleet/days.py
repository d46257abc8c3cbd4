"""UTC days as ns since 1970."""

from datetime import UTC, date, datetime
from typing import Final

DAY_NS: Final = 86_400 * 10**9
_EPOCH: Final = date(1970, 1, 1)


def bounds(day: date) -> tuple[int, int]:
    """[from, to) of a UTC day, in ns since 1970."""
    begin = (day - _EPOCH).days * DAY_NS
    return begin, begin + DAY_NS


def day_of(at_ns: int) -> date:
    """The UTC day of an instant."""
    return datetime.fromtimestamp(at_ns // 10**9, tz=UTC).date()
