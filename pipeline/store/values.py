"""From record values to column values: whatever a record carries fits its column, so that no row stops a batch."""

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

INT64_MAX: Final = 2**63 - 1
DAY_NS: Final = 86_400 * 1_000_000_000
# Days outside these years are clocks that were never set; one partition is enough for them.
EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date(2000, 1, 1) - EPOCH).days
_LAST_DAY: Final = (date(2100, 1, 1) - EPOCH).days


def unsigned(value: int, bits: int = 64) -> int:
    """The nearest value that an unsigned column holds."""
    return min(max(value, 0), (1 << bits) - 1)


def optional_unsigned(value: int | None, bits: int = 64) -> int | None:
    """As `unsigned`; None stays None."""
    return None if value is None else unsigned(value, bits)


def signed(value: int | None, bits: int = 64) -> int | None:
    """The nearest value that a signed column holds; None stays None."""
    return None if value is None else min(max(value, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def time_ns(value: int) -> int:
    """A time in ns since 1970 that DateTime64(9) holds (to the year 2262)."""
    return min(max(value, 0), INT64_MAX)


def optional_time_ns(value: int | None) -> int | None:
    """As `time_ns`; None stays None."""
    return None if value is None else time_ns(value)


def time_ms(value: int) -> int:
    """A time in ms since 1970 that DateTime64(3) holds."""
    return min(max(value, 0), INT64_MAX // 1_000_000)


def day(value_ns: int) -> date:
    """The UTC day of a time in ns; 1970-01-01 where the time is not known or absurd. A partition key."""
    return _day(value_ns // DAY_NS)


@lru_cache(maxsize=512)
def _day(days: int) -> date:
    if not _FIRST_DAY <= days < _LAST_DAY:
        return EPOCH
    return datetime.fromtimestamp(days * 86_400, tz=UTC).date()


def rfc3339_ns(text: str | None) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time, all nine digits kept; None for None or what is no time."""
    if text is None:
        return None
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    zone = rest[len(digits) :] if dot else ""
    try:
        moment = datetime.fromisoformat(head + zone)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return time_ns((delta.days * 86_400 + delta.seconds) * 1_000_000_000 + int(digits[:9].ljust(9, "0") or 0))
