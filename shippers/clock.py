"""The clocks of this host, read together; or, for recorded lines, the reading that came with them.

Every clock that enters a record is read here. What only paces the agent (pauses, retries) is not.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from schemas.records import ClockClaim, ClockReading
from schemas.zones import zone_text
from shippers.config import Config
from shippers.pieces import Moment
from shippers.time_daemon import TimeDaemon
from shippers.time_namespace import offsets_ns

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TRIES: Final = 4
_NARROW_NS: Final = 20_000  # a reading that took longer was interrupted: another one is worth its price

Gettime = Callable[[int], int]  # as time.clock_gettime_ns


class Clock(Protocol):
    """What of a clock may enter a record."""

    boot_id: str

    def read(self) -> ClockReading:
        """The four clocks, in ns."""

    def raw_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW now, in ns: what beacons and marks are measured on."""

    def observed_ns(self) -> int:
        """Wall time in ns for "observed"; 0 where no host clock may be used."""

    def moment(self, *, ending: bool = False) -> Moment:
        """Now, for a pass over the sources."""

    def claim(self) -> ClockClaim | None:
        """What is claimed of the wall clock now: by the settings, else by the time service of this host."""

    def zone(self) -> str | None:
        """The zone of local time now, as `+HH:MM`; None where no host clock may be used."""


class HostClock:
    """The clocks of this machine: `gettime` reads one of them. Offsets of a time namespace are taken off.

    So two containers of one host have one raw clock under one boot id, and kernel stamps are on the same boot clock.
    """

    def __init__(
        self, boot_id: str = "", *, gettime: Gettime = time.clock_gettime_ns, claim: ClockClaim | None = None,
        daemon: TimeDaemon | None = None,
    ) -> None:  # fmt: skip
        self.boot_id = boot_id or read_boot_id()
        self._gettime = gettime
        self._claim = claim
        self._daemon = daemon
        self._offsets = offsets_ns() or {}

    def read(self) -> ClockReading:
        """The four clocks between two readings of the raw one; the narrowest of a few tries."""
        best = self._read_once()
        for _ in range(_TRIES - 1):
            if best.width_ns <= _NARROW_NS:
                break
            best = min(best, self._read_once(), key=_width)
        return best

    def raw_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW now, in ns."""
        return self._now(time.CLOCK_MONOTONIC_RAW)

    def observed_ns(self) -> int:
        """Wall time now, in ns."""
        return self._now(time.CLOCK_REALTIME)

    def moment(self, *, ending: bool = False) -> Moment:
        """Now, by the wall clock and the monotonic one."""
        wall_ns = self.observed_ns()
        return Moment(
            observed_ns=wall_ns, mono_ns=self._now(time.CLOCK_MONOTONIC), wall_ns=wall_ns, ending=ending,
            observe=self.observed_ns,
        )  # fmt: skip

    def claim(self) -> ClockClaim | None:
        """The claim of the settings, else that of the time service."""
        if self._claim is not None or self._daemon is None:
            return self._claim
        return self._daemon.claim(self.read())

    def zone(self) -> str | None:
        """The offset of this host's local time from UTC now."""
        return zone_text(time.localtime().tm_gmtoff)

    def _now(self, clock_id: int) -> int:
        return self._gettime(clock_id) - self._offsets.get(clock_id, 0)

    def _read_once(self) -> ClockReading:
        raw = self._now(time.CLOCK_MONOTONIC_RAW)
        wall = self._now(time.CLOCK_REALTIME)
        mono = self._now(time.CLOCK_MONOTONIC)
        boottime = self._now(time.CLOCK_BOOTTIME)
        width = self._now(time.CLOCK_MONOTONIC_RAW) - raw
        return ClockReading(raw_ns=raw, mono_ns=mono, boottime_ns=boottime, wall_ns=wall, width_ns=width)


class StaticClock:
    """A reading that somebody recorded. It does not advance."""

    def __init__(self, reading: ClockReading, boot_id: str, claim: ClockClaim | None = None) -> None:
        self._reading = reading
        self._claim = claim
        self.boot_id = boot_id

    def read(self) -> ClockReading:
        """The recorded reading."""
        return self._reading

    def raw_ns(self) -> int:
        """The recorded raw clock."""
        return self._reading.raw_ns

    def observed_ns(self) -> int:
        """0: when a recorded line is read says nothing about it."""
        return 0

    def moment(self, *, ending: bool = False) -> Moment:
        """Now, for timers and the ages of files; nothing of it enters a record."""
        return Moment(observed_ns=0, mono_ns=time.monotonic_ns(), wall_ns=time.time_ns(), ending=ending)

    def claim(self) -> ClockClaim | None:
        """The claim that was recorded: this host's time service says nothing about it."""
        return self._claim

    def zone(self) -> str | None:
        """None: this host's zone says nothing about a recorded line."""
        return None


def no_zone() -> str | None:
    """None: for sources whose local time is not this host's."""
    return None


def make_clock(config: Config) -> Clock:
    """The clock that the settings ask for. Only a live run asks this host's time service for a claim."""
    settings = config.clock
    if settings.static is not None:
        return StaticClock(settings.static, settings.boot_id or f"static/{config.reporter}", settings.claim)
    daemon = TimeDaemon() if config.run == "live" else None
    return HostClock(settings.boot_id, claim=settings.claim, daemon=daemon)


def read_boot_id() -> str:
    """The kernel's id of this boot, or "" where it does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _width(reading: ClockReading) -> int:
    return reading.width_ns
