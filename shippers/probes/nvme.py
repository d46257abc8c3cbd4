"""What NVMe disks say of their own health (SMART): warnings, blocks that were lost, endurance that is used up."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from shippers.probes import command
from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent, Refused

BASE: Final = "/sys/class/nvme"
# Bits of the critical warning, by the NVM Express specification.
_WARNINGS: Final = ("spare", "temperature", "reliability", "read_only", "backup", "persistent_memory")
_SMARTCTL_READ: Final = 0b11111100  # exit bits that say something of the disk, not that it could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health log of one disk."""

    critical_warning: int
    percentage_used: int
    available_spare: int
    media_errors: int

    @property
    def warnings(self) -> str:
        """The names of the warnings."""
        return ",".join(name for bit, name in enumerate(_WARNINGS) if self.critical_warning >> bit & 1)


def health(text: str) -> Health | None:
    """What `smartctl --json` or `nvme smart-log --output-format=json` prints."""
    try:
        told: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    log = told.get("nvme_smart_health_information_log", told)
    warning = log.get("critical_warning") if isinstance(log, dict) else None
    if isinstance(warning, dict):  # nvme-cli from 2.0
        warning = warning.get("value")
    if not isinstance(warning, int):
        return None
    return Health(
        critical_warning=warning, media_errors=_number(log, "media_errors"),
        percentage_used=_number(log, "percentage_used", "percent_used"),
        available_spare=_number(log, "available_spare", "avail_spare"),
    )  # fmt: skip


def _number(log: dict[str, Any], *names: str) -> int:
    """A number that newer versions print as text."""
    for name in names:
        value = log.get(name)
        if isinstance(value, int | str) and str(value).isdecimal():
            return int(value)
    return 0


class Nvme(HostProbe):
    """`smartctl` or `nvme smart-log` of every NVMe controller on PCIe."""

    name = "nvme"
    may_hang = True
    keeps_counters = True

    def measure(self) -> None:
        """All disks."""
        disks = [name for name in self.tree.names(BASE) if self._is_local(name)]
        if not disks:
            raise Absent(f"no NVMe disk in {BASE}")
        program = command.found("smartctl", "nvme")
        if program is None:
            raise Absent("neither smartctl nor nvme is installed; they are in smartmontools and nvme-cli")
        refusals = []
        for disk in disks:
            try:
                self.see(disk, health(self._ask(program, f"/dev/{disk}")))
            except Refused as refusal:
                refusals.append(refusal)
        if len(refusals) == len(disks):
            raise Refused(f"{refusals[0]}; reading SMART needs root")

    def _is_local(self, name: str) -> bool:
        return (self.tree.text(f"{BASE}/{name}/transport") or "pcie").strip() == "pcie"

    def _ask(self, program: str, device: str) -> str:
        if program.endswith("smartctl"):
            return command.output(program, "--json", "--all", device, accepted=_SMARTCTL_READ)
        return command.output(program, "smart-log", device, "--output-format=json")

    def see(self, disk: str, now: Health | None) -> None:
        """Tell of one disk what has changed."""
        if now is None:
            raise Refused(f"what is printed of {disk} is no health log")
        said = partial(self._said, disk, now)
        self.watched("disk_warning", disk, now.critical_warning, said)
        self.watched("disk_used", disk, now.percentage_used, said)
        self.watched("disk_media_errors", disk, self.counters.gain(f"{disk} media", now.media_errors), said)

    def _said(self, disk: str, now: Health) -> dict[str, object]:
        serial = (self.tree.text(f"{BASE}/{disk}/serial") or "").strip()
        return {
            "device": disk, "serial": serial or None, "warning": now.warnings or "none",
            "media_errors": now.media_errors, "used_percent": now.percentage_used, "spare_percent": now.available_spare,
        }  # fmt: skip
