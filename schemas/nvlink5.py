"""What an NVLink5 error (Xid 144 to 150) means, from its unit name and the first two of its words.

Pure; the table is `signals/nvlink5.toml`. Word 0 holds a sub-code that drivers before R575 lay out differently, and for
link events the reason. How bad an error is follows from sub-code and error status, never from the Xid number.
"""

from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from schemas.matching import read_table

Severity = Literal["fatal", "link-fatal", "non-fatal"]
# From R575 on the sub-code stands in bits 6:0 of word 0.
NEW_LAYOUT_BRANCH: Final = 575

_WEIGHT: Final[dict[str, int]] = {"fatal": 2, "link-fatal": 1, "non-fatal": 0}
_LOOK_AT: Final[dict[str, str]] = {
    "INVESTIGATE_LINK_SI": "own_link",
    "INVESTIGATE_LINK_SI_AND_CABLES": "own_link_or_cables",
    "INVESTIGATE_SW_USER": "software",
    "INVESTIGATE_SW_USER_LINK_SI": "software_or_own_link",
    "INVESTIGATE_PEER_DEVICE": "peer",
    "INVESTIGATE_HOST": "host",
    "CHECK_NVLINK_FAILURE_FLOW": "other_link",
    "SYMPATHETIC_REPORT_SOLO": "other_fault",
    "REPORT_ISSUE": "own_link",
    "IGNORE": "nothing",
}
_FAULT: Final[dict[str, str]] = {"HW": "gpu", "SW": "software", "HW/SW": "gpu_or_software", "FW": "firmware"}


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the vendor's table, as it is in the file."""

    status: int
    severity: Severity
    action: str
    look_into: str
    fault: str
    reason: int | None = None
    second_action: str = ""
    local: str = ""
    remote: str = ""


class Unit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit of the link and its rows."""

    xid: int
    names: list[str]
    code: int
    code_r575: int
    rows: list[Row]


class Decoded(Struct, frozen=True, kw_only=True):
    """What an error means. `layout` is empty where both layouts, or neither, give the unit.

    `look_at`: own_link, own_link_or_cables, other_link, peer, gpu, software, firmware, host, other_fault, nothing, or
    two of these joined by `_or_`.
    """

    unit: str
    layout: Literal["", "before_r575", "r575"]
    reason: int | None
    severity: Severity
    action: str
    look_at: str
    row: Row


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    unit: list[Unit]


@lru_cache(maxsize=1)
def units() -> list[Unit]:
    """All units in the order of the file; raises SignalFileError for a wrong file."""
    return read_table("nvlink5", _File).unit


def decode(xid: int, unit: str, word0: int, word1: int, driver_branch: int | None = None) -> Decoded | None:
    """What the error means, or None where the table has no row for it.

    The printed name of the unit is trusted; its sub-code tells apart what shares a name, and stands in for a name that
    is not in the table. `driver_branch` (570, 575) settles the layout; without it the one that fits is taken.
    """
    found = _unit(xid, unit, word0, driver_branch)
    if found is None:
        return None
    reason = word0 >> 20 & 0x3F if found.rows[0].reason is not None else None
    row = _row(found, reason, word1)
    if row is None:
        return None
    return Decoded(
        unit=unit or found.names[0],
        layout=_layout(found, word0, driver_branch),
        reason=reason,
        severity=row.severity,
        action=row.action,
        look_at=_LOOK_AT.get(row.look_into) or _FAULT.get(row.fault, "nothing"),
        row=row,
    )


def _unit(xid: int, name: str, word0: int, driver_branch: int | None) -> Unit | None:
    of_xid = [unit for unit in units() if unit.xid == xid]
    named = [unit for unit in of_xid if name in unit.names]
    if len(named) == 1:
        return named[0]
    fits = [unit for unit in named or of_xid if _layout(unit, word0, driver_branch, strict=True)]
    if named:
        return fits[0] if fits else named[0]
    # Pipes that older drivers give one name mean the same; anything else that fits twice is not known.
    return fits[0] if len({unit.names[0] for unit in fits}) == 1 else None


def _layout(
    unit: Unit, word0: int, driver_branch: int | None, *, strict: bool = False
) -> Literal["", "before_r575", "r575"]:
    """The layout by which word 0 names the unit; empty where none does, or (unless strict) where both do."""
    before, after = word0 >> 5 & 0x1F == unit.code, word0 & 0x7F == unit.code_r575
    if driver_branch is not None:
        before, after = (before, False) if driver_branch < NEW_LAYOUT_BRANCH else (False, after)
    if before and after and not strict:
        return ""
    if before:
        return "before_r575"
    return "r575" if after else ""


def _row(unit: Unit, reason: int | None, status: int) -> Row | None:
    if reason is not None:
        return next((row for row in unit.rows if row.reason == reason), None)
    exact = next((row for row in unit.rows if row.status == status), None)
    if exact is not None or unit.xid >= 149:
        # The only row of a unit counts whatever the status; 149 and 150 number their statuses instead of using bits.
        return exact or (unit.rows[0] if len(unit.rows) == 1 else None)
    set_bits = [row for row in unit.rows if row.status & status]
    return max(set_bits, key=lambda row: _WEIGHT[row.severity], default=None)
