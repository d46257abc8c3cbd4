"""Processors that are throttled because they are hot."""

from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent

BASE: Final = "/sys/devices/system/cpu"


class Heat(HostProbe):
    """`thermal_throttle` of every processor: by package, and of its cores together."""

    name = "heat"

    def measure(self) -> None:
        """The counts of all packages."""
        packages: dict[str, int] = {}
        cores: dict[str, int] = {}
        for cpu in self.tree.names(BASE):
            if cpu[:3] != "cpu" or not cpu[3:].isdecimal():
                continue
            core = self.tree.number(f"{BASE}/{cpu}/thermal_throttle/core_throttle_count")
            if core is None:
                continue
            package = (self.tree.text(f"{BASE}/{cpu}/topology/physical_package_id") or "0").strip()
            cores[package] = cores.get(package, 0) + core
            whole = self.tree.number(f"{BASE}/{cpu}/thermal_throttle/package_throttle_count") or 0
            packages[package] = max(packages.get(package, 0), whole)
        if not cores:
            raise Absent(
                "no thermal_throttle below /sys/devices/system/cpu: the processor counts none, or a virtual machine"
            )
        for level, counted in (("package", packages), ("core", cores)):
            for package, value in counted.items():
                gained = self.counters.gain(f"{level} {package}", value)
                self.watched(f"cpu_heat_{level}", package, gained, partial(self._said, level, package, value))

    def _said(self, level: str, package: str, events: int) -> dict[str, object]:
        gained = self.total(f"cpu_heat_{level}", package)
        return {"level": level, "package": package, "events": events, "gained": gained}
