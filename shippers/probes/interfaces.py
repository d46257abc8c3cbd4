"""Network interfaces that are hardware, and bonds: whether their links are up, and the errors they count."""

from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent
from shippers.probes.thresholds import thresholds
from shippers.probes.tree import whole

BASE: Final = "/sys/class/net"
_ERRORS: Final = ("rx_crc_errors", "rx_errors", "tx_errors")
_IFF_UP: Final = 1
_HARDWARE: Final = ("device", "bonding")


class Interfaces(HostProbe):
    """`operstate`, `flags`, `carrier_down_count` and error counters."""

    name = "interfaces"
    may_hang = True  # a driver that recovers holds the lock of all of them

    def measure(self) -> None:
        """All interfaces of hardware."""
        names = [name for name in self.tree.names(BASE) if self._is_hardware(name)]
        if not names:
            raise Absent(f"no interface of hardware in {BASE}; a container may have virtual ones only")
        for name in names:
            self._see_link(name)
            self._see_errors(name)
        for place in [place for place in self.states if place not in names]:
            if self.states.pop(place) == "up":
                self.tell("net.link", netdev=place, to="gone", was="up")

    def _is_hardware(self, name: str) -> bool:
        if name.startswith(tuple(thresholds().names["virtual_interfaces"])):
            return False
        return any(self.tree.is_there(f"{BASE}/{name}/{each}") for each in _HARDWARE)

    def _see_link(self, name: str) -> None:
        state, was = self._state(name), self.states.get(name)
        downs = self.counters.gain(f"{name} downs", self.tree.number(f"{BASE}/{name}/carrier_down_count") or 0)
        if was is not None and state != was:
            self.tell("net.link", netdev=name, to=state, was=was)
            downs = 0
        flap: dict[str, object] = {"netdev": name, "to": "down", "what": "flapped"}
        self.watched("net_flap", name, downs if state == "up" else 0, lambda: flap)
        self.states[name] = state

    def _state(self, name: str) -> str:
        """`up`, `down`, or `off` where somebody took it down."""
        flags = (self.tree.text(f"{BASE}/{name}/flags") or "0x1").strip()
        if not int(flags, 16) & _IFF_UP:
            return "off"
        state = (self.tree.text(f"{BASE}/{name}/operstate") or "unknown").strip()
        if state == "unknown":  # drivers that do not say
            return "down" if self.tree.number(f"{BASE}/{name}/carrier") == 0 else "up"
        return "down" if state == "lowerlayerdown" else state

    def _see_errors(self, name: str) -> None:
        now = {each: whole(self.tree.text(f"{BASE}/{name}/statistics/{each}") or "") for each in _ERRORS}
        known = {each: value for each, value in now.items() if value is not None}
        for each, value in known.items():
            gained = self.counters.gain(f"{name} {each}", value)
            self.watched(f"net_{each}", name, gained, partial(self._said, name, each, known))

    def _said(self, name: str, counter: str, known: dict[str, int]) -> dict[str, object]:
        return {"netdev": name, "counter": counter, "gained": self.total(f"net_{counter}", name), **known}
