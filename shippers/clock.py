"""The clocks of this host, read together; or, for recorded lines, the reading that came with them."""

import time
from pathlib import Path
from typing import Final, Protocol

from schemas.records import ClockReading
from schemas.zones import zone_text
from shippers.config import Config

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What of a clock may enter a record."""

    boot_id: str

    def read(self) -> ClockReading:
        """The four clocks, in ns."""

    def observed_ns(self) -> int:
        """Wall time in ns for "observed"; 0 where no host clock may be used."""

    def zone(self) -> str | None:
        """The zone of local time now, as `+HH:MM`; None where no host clock may be used."""


class HostClock:
    """The clocks of this machine."""

    def __init__(self, boot_id: str = "") -> None:
        self.boot_id = boot_id or read_boot_id()

    def read(self) -> ClockReading:
        """The four clocks, read within a microsecond or so."""
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        mono = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return ClockReading(raw_ns=raw, mono_ns=mono, boottime_ns=boottime, wall_ns=wall)

    def observed_ns(self) -> int:
        """Wall time now, in ns."""
        return time.time_ns()

    def zone(self) -> str | None:
        """The offset of this host's local time from UTC now."""
        return zone_text(time.localtime().tm_gmtoff)


class StaticClock:
    """A reading that somebody recorded. It does not advance."""

    def __init__(self, reading: ClockReading, boot_id: str) -> None:
        self._reading = reading
        self.boot_id = boot_id

    def read(self) -> ClockReading:
        """The recorded reading."""
        return self._reading

    def observed_ns(self) -> int:
        """0: when a recorded line is read says nothing about it."""
        return 0

    def zone(self) -> str | None:
        """None: this host's zone says nothing about a recorded line."""
        return None


def no_zone() -> str | None:
    """None: for sources whose local time is not this host's."""
    return None


def make_clock(config: Config) -> Clock:
    """The clock that the settings ask for."""
    if config.clock.static is not None:
        return StaticClock(config.clock.static, config.clock.boot_id or f"static/{config.reporter}")
    return HostClock(config.clock.boot_id)


def read_boot_id() -> str:
    """The kernel's id of this boot, or "" where it does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
