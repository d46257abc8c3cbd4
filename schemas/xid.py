"""What an Xid number means and what the vendor says to do about it. The table is `signals/xid.toml`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from schemas.matching import read_table
from schemas.vocabulary import Role, Severity

AppFault = Literal["yes", "maybe", "no"]


class XidMeaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number. `name` is the driver's symbol; `action` and `investigate` are the vendor's words.

    `severity`: info, warning, error (a process dies), critical (reset of the GPU) or fatal (restart of the node).
    `app_fault`: whether the application is the first suspect.
    """

    name: str
    meaning: str
    role: Role
    label: str
    severity: Severity
    scope: str
    action: str
    app_fault: AppFault
    source: str
    investigate: str = ""
    note: str = ""


@lru_cache(maxsize=1)
def meanings() -> Mapping[int, XidMeaning]:
    """All known numbers, ascending; raises SignalFileError for a wrong file."""
    rows = read_table("xid", dict[str, XidMeaning])
    return {int(number): meaning for number, meaning in sorted(rows.items(), key=lambda row: int(row[0]))}


def meaning_of(number: int) -> XidMeaning | None:
    """What a number means, or None for one that is not known: drivers go on adding numbers."""
    return meanings().get(number)
