"""What an SXid number of NVSwitch means. The table is `signals/sxid.toml`: numbers, and families of a thousand."""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from schemas.matching import read_table
from schemas.vocabulary import Role, Severity


class SxidMeaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number, or the family of a number that is not known by itself.

    `name` is the driver's symbol; a family has none. Role, severity and label are those of the number alone.
    """

    meaning: str
    name: str = ""
    role: Role | None = None
    severity: Severity | None = None
    label: str | None = None


@lru_cache(maxsize=1)
def meanings() -> Mapping[int, SxidMeaning]:
    """All numbers (five digits) and families (two digits); raises SignalFileError for a wrong file."""
    rows = read_table("sxid", dict[str, SxidMeaning])
    return {int(number): meaning for number, meaning in rows.items()}


def meaning_of(number: int) -> SxidMeaning | None:
    """What a number means, else what its family is, else None."""
    known = meanings()
    return known.get(number) or known.get(number // 1000)
