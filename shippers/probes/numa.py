"""Memory that a NUMA node could not give, so that another one did."""

from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent
from shippers.probes.thresholds import thresholds
from shippers.probes.tree import pairs

BASE: Final = "/sys/devices/system/node"


class Numa(HostProbe):
    """`numastat` of every node."""

    name = "numa"

    def measure(self) -> None:
        """Misses a second, where they are a share worth naming of all pages given."""
        nodes = [name for name in self.tree.names(BASE) if name[:4] == "node" and name[4:].isdecimal()]
        if len(nodes) < 2:
            raise Absent("this machine has one NUMA node")
        for node in nodes:
            stat = pairs(self.tree.text(f"{BASE}/{node}/numastat") or "")
            missed = self.counters.gain(f"{node} miss", stat.get("numa_miss", 0))
            hit = self.counters.gain(f"{node} hit", stat.get("numa_hit", 0))
            share = 100 * missed / max(1, missed + hit)
            rate = missed / self.elapsed_s if self.elapsed_s else 0.0
            if share < thresholds().limits["numa_miss_share_percent"]:
                rate = 0.0
            self.watched("numa_miss", node, rate, partial(_said, node, rate, share))


def _said(node: str, rate: float, share: float) -> dict[str, object]:
    return {"numa_node": node[4:], "pages_per_s": f"{rate:.0f}", "share_percent": f"{share:.0f}"}
