"""Times as an incident shows them: a moment, and within ± what the true time lies."""

from datetime import UTC, datetime

from schemas.records import Event


def rfc3339(unix_ns: int | None) -> str | None:
    """RFC 3339 in UTC with microseconds, or None."""
    if unix_ns is None:
        return None
    seconds, rest = divmod(unix_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def shown_at(event: Event) -> str | None:
    """The time of an event, where it is known better than "after the last stamp of its file".

    It is the middle of its bounds, so that it lies within ± `error_ns`: a stamp of whole seconds is their left edge.
    """
    if event.aligned_time_unix_nano is None or event.quality == "none":
        return None
    return rfc3339(event.aligned_time_unix_nano + to_middle_ns(event))


def to_middle_ns(event: Event) -> int:
    """From the time that a line states to the middle of its bounds."""
    return (event.lo_unix_nano + event.hi_unix_nano) // 2 - (event.aligned_time_unix_nano or 0)


def error_ns(event: Event) -> int | None:
    """Half the width of the bounds in ns, where there are bounds on both sides."""
    if event.aligned_time_unix_nano is None or event.quality == "none":
        return None
    return (event.hi_unix_nano - event.lo_unix_nano) // 2
