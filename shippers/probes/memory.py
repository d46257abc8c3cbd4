"""Processes that the kernel killed for lack of memory, and whose limit was the reason.

The machine's own count is cheap and looked at often; only when it grew are the cgroups asked whose it was.
"""

from functools import partial

from shippers.probes import cgroups
from shippers.probes.counted import Counters, HostProbe
from shippers.probes.probe import Absent
from shippers.probes.tree import pairs, whole


class Memory(HostProbe):
    """`oom_kill` of `/proc/vmstat`, with `memory.events` or `memory.oom_control` of the cgroups."""

    name = "memory"
    keeps_counters = True

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self._groups = Counters()
        self._are_known = False

    def measure(self) -> None:
        """What was killed since the last look."""
        text = self.tree.needed("/proc/vmstat", "no /proc/vmstat")
        _, _, behind = text.partition("\noom_kill ")
        kills = whole(behind.partition("\n")[0])
        if kills is None:
            raise Absent("/proc/vmstat counts no oom_kill: a kernel before 4.13")
        if not self._are_known:
            self._killed_by_limit()  # what they counted before is not new
            self._are_known = True
        gained = self.counters.gain("oom_kill", kills)
        by_limit = self._killed_by_limit() if gained else {}
        for group in {*by_limit, *self.places("oom_kill")}:
            self.watched("oom_kill", group, by_limit.get(group, 0), partial(self._said, group))
        rest = max(0, gained - sum(by_limit.values()))
        self.watched("oom_kill_machine", "", rest, partial(self._said, ""))

    def _said(self, group: str) -> dict[str, object]:
        where = cgroups.hierarchy(self.tree, "memory")
        return {
            "kind": "memcg" if group else "machine", "cgroup": group or None,
            "oom_kill": self.total("oom_kill" if group else "oom_kill_machine", group),
            "pid": cgroups.a_process(self.tree, where, group) if where and group else None,
        }  # fmt: skip

    def _killed_by_limit(self) -> dict[str, int]:
        """The kills of each cgroup since this was last asked, where its limit or that of one above it was reached."""
        where = cgroups.hierarchy(self.tree, "memory")
        if where is None:
            return {}
        hit: set[str] = set()
        found: dict[str, int] = {}
        for group in cgroups.below(self.tree, where):
            kills, hits = self._counted(where, group)
            hits = self._groups.gain(f"{group} hits", hits)
            kills = self._groups.gain(f"{group} kills", kills)
            if hits or group.rpartition("/")[0] in hit:
                hit.add(group)  # parents come first
            if kills and group and group in hit:
                found[group] = kills
        self._groups.end_look()
        return found

    def _counted(self, where: cgroups.Hierarchy, group: str) -> tuple[int, int]:
        """The kills of processes of the cgroup itself, and how often its own limit was reached."""
        folder = where.base + group
        if where.is_v2:
            events = pairs(self.tree.text(f"{folder}/memory.events.local") or "")
            return events.get("oom_kill", 0), events.get("oom", 0)
        control = pairs(self.tree.text(f"{folder}/memory.oom_control") or "")
        return control.get("oom_kill", 0), self.tree.number(f"{folder}/memory.failcnt") or 0
