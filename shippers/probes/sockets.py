"""The peers to which most is sent again. `ss` lists all sockets, so it is asked only while segments are sent again."""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Final

from shippers.probes import command
from shippers.probes.counted import Counters, HostProbe
from shippers.probes.probe import Absent
from shippers.probes.tcp import table
from shippers.probes.thresholds import thresholds

_RETRANS: Final = re.compile(r"\bretrans:\d{1,9}/(\d{1,12})")
_RTO: Final = re.compile(r"\brto:(\d{1,8})")
_ADDRESSES: Final = re.compile(r"^\d+\s+\d+\s+(\S+):(\S+)\s+(\S+):(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One connection: both ends, how much was sent again, and the time-out of a retransmission."""

    local: str
    peer: str
    peer_address: str
    retrans_total: int
    rto_ms: int


def sockets(text: str) -> list[Socket]:
    """What `ss -tinH` prints: a line of addresses, then a line of what TCP knows."""
    found: list[Socket] = []
    ends: re.Match[str] | None = None
    for line in text.splitlines():
        match = _ADDRESSES.match(line)
        ends = match or ends
        again = _RETRANS.search(line)
        if ends is None or again is None:
            continue
        rto = _RTO.search(line)
        found.append(
            Socket(
                local=f"{ends[1]}:{ends[2]}", peer=f"{ends[3]}:{ends[4]}", peer_address=_plain(ends[3]),
                retrans_total=int(again[1]), rto_ms=int(rto[1]) if rto else 0,
            )
        )  # fmt: skip
        ends = None
    return found


def _plain(address: str) -> str:
    """An address without brackets, zone and the prefix of a mapped one."""
    return address.strip("[]").partition("%")[0].removeprefix("::ffff:")


class Sockets(HostProbe):
    """`ss -tinH state connected`."""

    name = "sockets"
    may_hang = True

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self._sockets = Counters()

    def measure(self) -> None:
        """Who lost most since the last look."""
        program = command.found("ss")
        if program is None:
            raise Absent("`ss` is not installed; it is in the package iproute2 or iproute")
        now = table(self.tree.needed("/proc/net/snmp", "no /proc/net/snmp"), "Tcp")
        again = self.counters.gain("again", now.get("RetransSegs", 0))
        if again < thresholds().limits["segments_for_sockets"] and not self.places("tcp_socket"):
            self._sockets = Counters()  # what they gain until they are asked again is not of one look
            return
        self.tell_of(sockets(command.output(program, "-tinH", "state", "connected")))

    def tell_of(self, listed: list[Socket]) -> None:
        """The peers to which most was sent again since they were listed last."""
        gained: dict[str, int] = defaultdict(int)
        by_peer: dict[str, list[Socket]] = defaultdict(list)
        for one in listed:
            gained[one.peer_address] += self._sockets.gain(f"{one.local} {one.peer}", one.retrans_total)
            by_peer[one.peer_address].append(one)
        self._sockets.end_look()
        told = sorted(gained, key=lambda peer: (-gained[peer], peer))[: int(thresholds().limits["sockets_told"])]
        for peer in {*told, *self.places("tcp_socket")}:
            said = partial(_said, peer, gained.get(peer, 0), by_peer.get(peer, []))
            self.watched("tcp_socket", peer, gained.get(peer, 0), said)


def _said(peer: str, gained: int, listed: list[Socket]) -> dict[str, object]:
    return {
        "peer": peer, "gained": gained, "sockets": len(listed),
        "retrans_total": sum(one.retrans_total for one in listed),
        "rto_ms": max((one.rto_ms for one in listed), default=0),
    }  # fmt: skip
