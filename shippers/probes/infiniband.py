"""Ports of InfiniBand and RoCE adapters: whether their links are up, and what their counters gain."""

from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent
from shippers.probes.thresholds import thresholds
from shippers.probes.tree import whole

BASE: Final = "/sys/class/infiniband"
_PREFIX: Final = "ib_"
_DOWNED: Final = "link_downed"
_ACTIVE: Final = "active"


class InfiniBand(HostProbe):
    """`counters`, `hw_counters`, `state`, `phys_state` and `rate` of every port. Reading them asks the adapter."""

    name = "infiniband"
    may_hang = True
    keeps_counters = True

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self._names = [
            name.removeprefix(_PREFIX) for name in thresholds().threshold
            if name.startswith(_PREFIX) and name != f"{_PREFIX}{_DOWNED}"
        ]  # fmt: skip

    def measure(self) -> None:
        """All ports."""
        ports = [
            (device, port) for device in self.tree.names(BASE) for port in self.tree.names(f"{BASE}/{device}/ports")
        ]
        if not ports:
            raise Absent(f"no {BASE}: no InfiniBand or RoCE adapter, or its driver is not loaded")
        for device, port in ports:
            folder = f"{BASE}/{device}/ports/{port}"
            counters = self._counters(folder)
            self._see_link(device, port, folder, counters)
            self._see_counters(device, port, counters)

    def _counters(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in (*self._names, _DOWNED):
            for kind in ("counters", "hw_counters"):
                value = self.tree.number(f"{folder}/{kind}/{name}")
                if value is not None:
                    found[name] = value
                    break
        return found

    def _see_counters(self, device: str, port: str, counters: dict[str, int]) -> None:
        for name in self._names:
            if name in counters:
                place = f"{device}/{port}"
                gained = self.counters.gain(f"{place} {name}", counters[name])
                said = partial(self._said, device, port, name, counters)
                self.watched(f"{_PREFIX}{name}", place, gained, said)

    def _said(self, device: str, port: str, name: str, counters: dict[str, int]) -> dict[str, object]:
        gained = self.total(f"{_PREFIX}{name}", f"{device}/{port}")
        others = {each: value for each, value in counters.items() if value}
        return {"nic": device, "port": port, "counter": name, "gained": gained, **others}

    def _see_link(self, device: str, port: str, folder: str, counters: dict[str, int]) -> None:
        place = f"{device}/{port}"
        state, was = _word(self.tree.text(f"{folder}/state")), self.states.get(place)
        rate, had = _rate(self.tree.text(f"{folder}/rate")), self.states.get(f"{place} rate")
        said: dict[str, object] = {
            "phys_state": _word(self.tree.text(f"{folder}/phys_state")), "rate_gbps": rate,
            "link_downed": counters.get(_DOWNED),
        }  # fmt: skip
        downs = self.counters.gain(f"{place} {_DOWNED}", counters.get(_DOWNED, 0))
        if state and was and state != was:
            self.tell("ib.port", nic=device, port=port, to=state, was=was, **said)
            downs = 0  # the line says so
        flap = {"nic": device, "port": port, "to": "down", "what": "flapped", **said}
        self.watched(f"{_PREFIX}{_DOWNED}", place, downs if state == _ACTIVE else 0, lambda: flap)
        if state == _ACTIVE and rate and had and float(rate) != float(had):
            self.tell("ib.rate", nic=device, port=port, rate_gbps=rate, was_gbps=had,
                      way="lower" if float(rate) < float(had) else "higher")  # fmt: skip
        if state:
            self.states[place] = state
        if state == _ACTIVE and rate:
            self.states[f"{place} rate"] = rate


def _word(text: str | None) -> str | None:
    """`4: ACTIVE` is active."""
    _, _, word = (text or "").partition(":")
    return word.strip().lower() or None


def _rate(text: str | None) -> str | None:
    """`400 Gb/sec (4X NDR)` is 400."""
    number = (text or "").partition(" ")[0]
    return number if whole(number.partition(".")[0]) is not None else None
