"""What the register words of an NVLink error up to Hopper (Xid 74) mean. Pure; the table is `signals/nvlink4.toml`."""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from schemas.matching import read_table


class Bits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bits of the words (counted from 1) that mean one thing, and where to look then."""

    kind: str
    meaning: str
    look_at: str
    words: dict[str, list[int]]

    def among(self, registers: Sequence[int]) -> bool:
        """Whether one of the bits is set."""
        return any(
            registers[int(word) - 1] >> bit & 1
            for word, bits in self.words.items()
            if int(word) <= len(registers)
            for bit in bits
        )


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bits: list[Bits]


@lru_cache(maxsize=1)
def kinds() -> list[Bits]:
    """All kinds, the weightiest first; raises SignalFileError for a wrong file."""
    return read_table("nvlink4", _File).bits


def decode(registers: Sequence[int]) -> Bits | None:
    """The weightiest kind whose bits are set, or None where no published bit is."""
    return next((kind for kind in kinds() if kind.among(registers)), None)
