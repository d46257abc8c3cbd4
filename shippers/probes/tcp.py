"""TCP of this machine: the share of segments that are sent again, and connections that nobody accepts."""

from functools import partial

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Refused
from shippers.probes.thresholds import thresholds
from shippers.probes.tree import whole


def table(text: str, protocol: str) -> dict[str, int]:
    """Of `/proc/net/snmp` or `netstat` the two lines of one protocol: names, then numbers."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(f"{protocol}:")]
    if len(lines) < 2:
        return {}
    numbers = ((name, whole(value)) for name, value in zip(lines[0], lines[1], strict=False))
    return {name: value for name, value in numbers if value is not None}


class Tcp(HostProbe):
    """`/proc/net/snmp` and `/proc/net/netstat`, of the network namespace that the agent is in."""

    name = "tcp"

    def measure(self) -> None:
        """What was sent again and what was dropped since the last look."""
        now = table(self.tree.needed("/proc/net/snmp", "no /proc/net/snmp"), "Tcp")
        if "RetransSegs" not in now or "OutSegs" not in now:
            raise Refused("/proc/net/snmp says nothing of TCP")
        more = table(self.tree.text("/proc/net/netstat") or "", "TcpExt")
        again = self.counters.gain("again", now["RetransSegs"])
        sent = self.counters.gain("sent", now["OutSegs"])
        percent = 100 * again / sent if sent >= thresholds().limits["segments_for_a_rate"] else 0.0
        self.watched("tcp_retransmit", "", percent, lambda: self._said(percent, now, more))
        overflows = self.counters.gain("overflows", more.get("ListenOverflows", 0))
        drops = self.counters.gain("drops", more.get("ListenDrops", 0))
        self.watched("tcp_listen", "", max(overflows, drops), partial(self._said_listen, more))

    def _said(self, percent: float, now: dict[str, int], more: dict[str, int]) -> dict[str, object]:
        return {
            "percent": f"{percent:.2f}", "retrans_segs": now["RetransSegs"], "out_segs": now["OutSegs"],
            "lost_retransmit": more.get("TCPLostRetransmit"), "timeouts": more.get("TCPTimeouts"),
            "syn_retrans": more.get("TCPSynRetrans"), "abort_on_timeout": more.get("TCPAbortOnTimeout"),
            "seconds": f"{self.elapsed_s:.0f}" if self.elapsed_s else None,
        }  # fmt: skip

    def _said_listen(self, more: dict[str, int]) -> dict[str, object]:
        return {
            "gained": self.total("tcp_listen", ""), "listen_overflows": more.get("ListenOverflows", 0),
            "listen_drops": more.get("ListenDrops", 0),
        }  # fmt: skip
