"""New entries of the system event log that the BMC keeps: power supplies, fans, memory, watchdog.

They are told as `ipmitool` prints them, behind a stamp of this host's clock: BMC clocks are often wrong, so theirs is
compared with ours whenever there is something new.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from shippers.probes import command
from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent, Refused
from shippers.probes.thresholds import thresholds

_ENTRY: Final = re.compile(
    r"^\s{0,8}([0-9a-f]{1,4}) \| ([^|\n]{1,20}?) {0,3}\|([^|\n]{1,20}?) {0,3}\| (.{1,400}?)\s*$", re.MULTILINE
)
_STAMP: Final = re.compile(r"(\d\d)/(\d\d)/(\d{4}|\d\d) (\d\d):(\d\d):(\d\d)(?: (AM|PM))?")
_DEVICES: Final = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
_LAST: Final = "32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `at` is on the BMC's clock; None where it was not set."""

    record: str
    at: datetime | None
    text: str

    @property
    def mark(self) -> str:
        """What it is known again by; record numbers begin anew when the log is cleared."""
        return f"{self.record} {self.at.isoformat() if self.at else '-'}"


def entries(text: str) -> list[Entry]:
    """What `ipmitool sel elist` prints, oldest first."""
    return [
        Entry(record=match[1], at=stamp(f"{match[2].strip()} {match[3].strip()}"), text=match[4])
        for match in _ENTRY.finditer(text)
    ]


def stamp(text: str) -> datetime | None:
    """A time as ipmitool prints it, with a year of two or four digits."""
    match = _STAMP.match(text)
    if match is None:
        return None
    month, day, year, hour, minute, second = (int(match[number]) for number in range(1, 7))
    if match[7]:
        hour = hour % 12 + (12 if match[7] == "PM" else 0)
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


class EventLog(HostProbe):
    """`ipmitool sel elist` and, where something is new, `ipmitool sel time get`."""

    name = "sel"
    may_hang = True

    def __init__(self, root: str = "/", ask: Callable[..., str] | None = None) -> None:
        super().__init__(root)
        self._ask = ask

    def measure(self) -> None:
        """What is new since the entry that was read last."""
        began_ns = time.monotonic_ns()
        ask = self._ask or self._program()
        known = self.states.get("last")
        listed = entries(ask("elist", "last", _LAST))
        if known is None:
            self.states["last"] = listed[-1].mark if listed else ""
            return
        new = _after(listed, known)
        if new is None:
            listed = entries(ask("elist"))
            new = _after(listed, known)
            new = listed if new is None else new  # the log was cleared: all that is in it came after
        if new:
            self._tell(new, self._ahead(ask, began_ns))
            self.states["last"] = new[-1].mark

    def _program(self) -> Callable[..., str]:
        program = command.found("ipmitool")
        if program is None:
            raise Absent("`ipmitool` is not installed")
        if not any(self.tree.is_there(device) for device in _DEVICES):
            raise Absent("no /dev/ipmi0: no BMC, or the modules ipmi_si and ipmi_devintf are not loaded")
        return lambda *arguments: command.output(program, "sel", *arguments)

    def _ahead(self, ask: Callable[..., str], began_ns: int) -> timedelta | None:
        """How much the host's clock is ahead of the BMC's; None where the BMC does not say."""
        try:
            theirs = stamp(ask("time", "get").strip())
        except Refused:
            return None
        if theirs is None:
            return None
        ours_ns = self.moment.wall_ns + time.monotonic_ns() - began_ns
        return datetime.fromtimestamp(ours_ns / 1e9, UTC) - theirs

    def _tell(self, new: Sequence[Entry], ahead: timedelta | None) -> None:
        most = int(thresholds().limits["sel_told"])
        if len(new) > most:
            self.tell("bmc.sel_left_out", entries=len(new) - most)
        for entry in new[-most:]:
            at = "" if entry.at is None or ahead is None else f"{(entry.at + ahead):%Y-%m-%dT%H:%M:%SZ} "
            self.tell_raw(f"{at}rootrank: bmc.sel record={entry.record} | {_printable(entry.text)}")


def _after(listed: list[Entry], mark: str) -> list[Entry] | None:
    """The entries after one; None where it is not among them. An empty mark is before all."""
    if not mark:
        return listed if len(listed) < int(_LAST) else None
    for place in range(len(listed) - 1, -1, -1):
        if listed[place].mark == mark:
            return listed[place + 1 :]
    return None


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
