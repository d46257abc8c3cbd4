"""What the groups of a prefix say of a line: its stamp, its node, its rank."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from pipeline.core.stamps import Stamp, stamp_of
from schemas.matching import Prefix, load_prefixes

_INT_FIELDS: Final = frozenset({"rank", "local_rank", "task", "pid", "cuda_dev", "pg_rank"})
_TEXT_FIELDS: Final = frozenset({"node", "process", "pod", "pg"})
_SPLIT_FIELDS: Final = {"process_pid": "process", "process_plain": "process"}
_DIGITS: Final = 9


class PrefixFields:
    """How the values of the groups of one prefix become fields of a ParsedLine."""

    def __init__(self, prefix: Prefix) -> None:
        groups = sorted(prefix.pattern.groupindex.items(), key=lambda pair: pair[1])
        self.count = prefix.pattern.groups
        places = {name: number - 1 for name, number in groups}
        self._ints = [(name, at) for name, at in places.items() if name in _INT_FIELDS]
        self._texts = [
            (_SPLIT_FIELDS.get(n, n), at) for n, at in places.items() if n in _TEXT_FIELDS or n in _SPLIT_FIELDS
        ]
        self._own_rank = places.get("own_rank")
        self._boot, self._boot_us = places.get("boot"), places.get("boot_us")
        self._entry = prefix.entry
        self._fraction = places.get("fraction") if prefix.entry.fraction == "keep" else None
        self._names = tuple(name for name, _ in groups if name != "fraction")
        self._places = tuple(at for name, at in places.items() if name != "fraction")

    def take(self, values: tuple[str | None, ...], fields: dict[str, Any]) -> bool:
        """Keep what the values say; False where the stamp is no possible time: then it is no prefix after all."""
        if self._entry.stamp and not self._take_stamp(values, fields):
            return False
        for name, at in self._ints:
            value = values[at]
            if value is not None:
                fields[name] = int(value)
        for name, at in self._texts:
            value = values[at]
            if value is not None:
                fields[name] = value
        if self._own_rank is not None and (own_rank := values[self._own_rank]) is not None:
            # Inside a group this is the rank in the group; before torch 2.2 nothing else says the rank.
            fields.setdefault("pg_rank" if "rank" in fields else "rank", int(own_rank))
        return True

    def _take_stamp(self, values: tuple[str | None, ...], fields: dict[str, Any]) -> bool:
        if self._boot is not None and (boot := values[self._boot]) is not None:
            fields["boot_ns"] = int(boot.replace(".", "")) * 1000
            fields.setdefault("process", "kernel")
            return True
        if self._boot_us is not None and (boot_us := values[self._boot_us]) is not None:
            fields["boot_ns"] = int(boot_us) * 1000
            fields["process"] = "kernel"
            return True
        stamp = _whole_second(self._names, tuple([values[at] for at in self._places]), self._entry.name)
        if stamp is None:
            return False
        fraction = values[self._fraction] if self._fraction is not None else None
        if fraction:
            digits = fraction[:_DIGITS]
            more_ns, resolution_ns = int(digits) * 10 ** (_DIGITS - len(digits)), 10 ** (_DIGITS - len(digits))
            stamp = msgspec.structs.replace(stamp, ns=stamp.ns + more_ns, resolution_ns=resolution_ns)
        outer = fields.get("stamp")
        # Of nested stamps the one that leaves least open; the inner one (nearer to the writer) where they are equal.
        if outer is None or (stamp.has_zone, stamp.has_year) >= (outer.has_zone, outer.has_year):
            fields["stamp"] = stamp
        return True


@lru_cache(maxsize=1)
def all_fields() -> dict[str, PrefixFields]:
    """The fields of every prefix, by the name of its entry."""
    return {prefix.entry.name: PrefixFields(prefix) for prefix in load_prefixes().prefixes}


@lru_cache(maxsize=16_384)
def _whole_second(names: tuple[str, ...], values: tuple[str | None, ...], kind: str) -> Stamp | None:
    """The stamp without its fraction: many lines share a second."""
    return stamp_of(dict(zip(names, values, strict=True)), kind)
