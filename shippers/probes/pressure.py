"""Pressure stall information: for how much of the time tasks wait for processors, memory and storage."""

import re
from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Refused

_LINE: Final = re.compile(
    r"^(some|full) avg10=(\d{1,3}\.\d\d) avg60=(\d{1,3}\.\d\d) avg300=(\d{1,3}\.\d\d) total=\d+", re.MULTILINE
)
# What of each resource says something: some tasks always wait for a processor, all of them for memory never.
_MEASURES: Final = {"cpu": "some", "memory": "full", "io": "full", "irq": "full"}
_ABSENT: Final = "no /proc/pressure: this kernel has no PSI, or was started with psi=0"


class Pressure(HostProbe):
    """`/proc/pressure/*`."""

    name = "pressure"

    def measure(self) -> None:
        """The averages over a minute."""
        texts = {"cpu": self.tree.needed("/proc/pressure/cpu", _ABSENT)}
        texts.update({name: self.tree.text(f"/proc/pressure/{name}") or "" for name in ("memory", "io", "irq")})
        if not any(_LINE.search(text) for text in texts.values()):
            raise Refused("/proc/pressure says nothing; start the kernel with psi=1")
        for resource, kind in _MEASURES.items():
            for match in _LINE.finditer(texts[resource]):
                if match[1] == kind:
                    said = partial(_said, resource, match)
                    self.watched(f"pressure_{resource}_{kind}", resource, float(match[3]), said)


def _said(resource: str, match: re.Match[str]) -> dict[str, object]:
    return {
        "resource": resource, "kind": match[1], "avg10_percent": match[2], "avg60_percent": match[3],
        "avg300_percent": match[4],
    }  # fmt: skip
