"""Cgroups that are held back by their quota of processor time."""

from functools import partial

from shippers.probes import cgroups
from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent
from shippers.probes.thresholds import thresholds
from shippers.probes.tree import pairs

_NS_PER_US = 1000


class Throttling(HostProbe):
    """`cpu.stat` of every cgroup that has a quota."""

    name = "throttling"

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self._where: cgroups.Hierarchy | None = None
        self._limited: list[str] = []
        self._listed_s = float("-inf")

    def measure(self) -> None:
        """What was held back since the last look."""
        self._find()
        assert self._where is not None
        for group in self._limited:
            stat = pairs(self.tree.text(f"{self._where.base}{group}/cpu.stat") or "")
            if "nr_periods" not in stat:
                continue
            periods = self.counters.gain(f"{group} periods", stat["nr_periods"])
            throttled = self.counters.gain(f"{group} throttled", stat.get("nr_throttled", 0))
            held_us = stat.get("throttled_usec", stat.get("throttled_time", 0) // _NS_PER_US)
            held = self.counters.gain(f"{group} held", held_us)
            percent = 100 * throttled / periods if periods else 0.0
            said = partial(self._said, group, percent, periods, throttled, held)
            self.watched("cpu_throttle", group, percent, said)
        self.drop_gone("cpu_throttle", set(self._limited))

    def _said(self, group: str, percent: float, periods: int, throttled: int, held_us: int) -> dict[str, object]:
        assert self._where is not None
        return {
            "cgroup": group or "/", "throttled_percent": f"{percent:.0f}", "periods": periods,
            "throttled": throttled, "throttled_us": held_us,
            "seconds": f"{self.elapsed_s:.0f}" if self.elapsed_s else None,
            "pid": cgroups.a_process(self.tree, self._where, group),
        }  # fmt: skip

    def _find(self) -> None:
        """The cgroups that have a quota; looked for again now and then."""
        if self.now_s - self._listed_s < thresholds().limits["cgroups_known_s"]:
            return
        self._where = cgroups.hierarchy(self.tree, "cpu")
        if self._where is None:
            raise Absent(f"no cgroup controller of processors below {cgroups.ROOT}")
        self._limited = [group for group in cgroups.below(self.tree, self._where) if self._has_quota(group)]
        self._listed_s = self.now_s

    def _has_quota(self, group: str) -> bool:
        assert self._where is not None
        if self._where.is_v2:
            text = self.tree.text(f"{self._where.base}{group}/cpu.max") or "max"
            return not text.startswith("max")
        quota = self.tree.number(f"{self._where.base}{group}/cpu.cfs_quota_us")
        return quota is not None and quota > 0
