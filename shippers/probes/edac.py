"""Memory errors that the memory controllers count (EDAC)."""

from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent

BASE: Final = "/sys/devices/system/edac/mc"


class Edac(HostProbe):
    """`dimm_ce_count` and `dimm_ue_count` of every module; those of the controller where there are none."""

    name = "edac"
    keeps_counters = True

    def measure(self) -> None:
        """All controllers."""
        controllers = [name for name in self.tree.names(BASE) if name[:2] == "mc" and name[2:].isdecimal()]
        if not controllers:
            raise Absent(f"no memory controller in {BASE}: no ECC memory, a virtual machine, or no EDAC driver")
        for controller in controllers:
            modules = [n for n in self.tree.names(f"{BASE}/{controller}") if n.startswith(("dimm", "rank"))]
            for kind in ("ue", "ce"):
                counted = [self._see(kind, controller, module) for module in modules]
                of_modules = sum(value for value in counted if value is not None)
                whole = self.tree.number(f"{BASE}/{controller}/{kind}_count") or 0
                # What no module is named for: the driver does not know which it was.
                self._tell(kind, controller, f"mc#{controller[2:]}", max(0, whole - of_modules))

    def _see(self, kind: str, controller: str, module: str) -> int | None:
        value = self.tree.number(f"{BASE}/{controller}/{module}/dimm_{kind}_count")
        if value is not None:
            label = (self.tree.text(f"{BASE}/{controller}/{module}/dimm_label") or "").strip()
            self._tell(kind, controller, label or f"mc#{controller[2:]}{module}", value)
        return value

    def _tell(self, kind: str, controller: str, dimm: str, value: int) -> None:
        place = f"{controller}/{dimm}"
        gained = self.counters.gain(f"{kind} {place}", value)
        self.watched(f"edac_{kind}", place, gained, partial(self._said, kind, controller, dimm, place))

    def _said(self, kind: str, controller: str, dimm: str, place: str) -> dict[str, object]:
        return {
            "kind": kind.upper(), "controller": controller[2:], "dimm": dimm,
            "count": self.total(f"edac_{kind}", place),
        }  # fmt: skip
