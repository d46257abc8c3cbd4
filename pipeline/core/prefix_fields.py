"""What the groups of prefixes say of a line: its stamp, its node, its rank."""

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pipeline.core.stamps import Stamp, stamp_of
from schemas.matching import Prefix, load_prefixes

_TEXT_FIELDS: Final = {name: name for name in ("node", "process", "pod", "pg")}
# A text field may stand in several places of one pattern.
_FIELDS: Final = {**_TEXT_FIELDS, "process_pid": "process", "process_plain": "process"}
_INT_FIELDS: Final = frozenset({"rank", "local_rank", "task", "pid", "cuda_dev", "pg_rank"})
_DIGITS: Final = 9
# By the number of digits of a fraction of a second.
_RESOLUTION_NS: Final = tuple(10 ** (_DIGITS - digits) for digits in range(_DIGITS + 1))

Values = tuple[str | None, ...]
Fields = dict[str, Any]


class Taker(NamedTuple):
    """Takes the value at one place among the groups: `take` False means that the prefix is none after all."""

    take: Callable[[Values, int, Fields], bool] | None
    name: str
    at: int
    is_number: bool


def take(takers: list[Taker], values: Values, fields: Fields) -> bool:
    """Keep what the values say; False where a stamp is no possible time."""
    for special, name, at, is_number in takers:
        if special is not None:
            if not special(values, at, fields):
                return False
            continue
        value = values[at]
        if value is not None:
            fields[name] = int(value) if is_number else value
    return True


def takers_of(prefix: Prefix, at: int = 0) -> list[Taker]:
    """How to take the values of one prefix whose groups begin at place `at`."""
    places = {name: number - 1 + at for name, number in prefix.pattern.groupindex.items()}
    takers = []
    if prefix.entry.stamp:
        takers.append(Taker(_stamp_taker(prefix, places), "stamp", at, False))
    for name, place in sorted(places.items(), key=lambda pair: pair[1]):
        if name in _INT_FIELDS:
            takers.append(Taker(None, name, place, True))
        elif name in _FIELDS:
            takers.append(Taker(None, _FIELDS[name], place, False))
    if "own_rank" in places:
        takers.append(Taker(_take_own_rank, "rank", places["own_rank"], True))
    return takers


@lru_cache(maxsize=1)
def all_takers() -> dict[str, list[Taker]]:
    """The takers of every prefix that stands alone, by the name of its entry."""
    return {prefix.entry.name: takers_of(prefix) for prefix in load_prefixes().prefixes}


def _take_own_rank(values: Values, at: int, fields: Fields) -> bool:
    own_rank = values[at]
    if own_rank is not None:
        # Inside a group this is the rank in the group; before torch 2.2 nothing else says the rank.
        fields.setdefault("pg_rank" if "rank" in fields else "rank", int(own_rank))
    return True


def _stamp_taker(prefix: Prefix, places: dict[str, int]) -> Callable[[Values, int, Fields], bool]:
    kind = prefix.entry.name
    boot, boot_us, fraction = places.get("boot"), places.get("boot_us"), places.get("fraction")
    keeps_fraction = fraction is not None and prefix.entry.fraction == "keep"
    names = tuple(name for name in places if name != "fraction")
    chosen = [places[name] for name in names]
    pick: Any = itemgetter(*chosen) if len(chosen) > 1 else lambda values: tuple(values[at] for at in chosen)

    def take_stamp(values: Values, _at: int, fields: Fields) -> bool:
        if boot is not None and (seconds := values[boot]) is not None:
            fields["boot_ns"] = int(seconds.replace(".", "")) * 1000
            fields.setdefault("process", "kernel")
            return True
        if boot_us is not None and (microseconds := values[boot_us]) is not None:
            fields["boot_ns"] = int(microseconds) * 1000
            fields["process"] = "kernel"
            return True
        stamp = _whole_second(names, pick(values), kind)
        if stamp is None:
            return False
        digits = values[fraction][:_DIGITS] if keeps_fraction and values[fraction] else ""  # type: ignore[index]
        if digits:
            unit_ns = _RESOLUTION_NS[len(digits)]
            stamp = Stamp(
                ns=stamp.ns + int(digits) * unit_ns, resolution_ns=unit_ns, has_year=stamp.has_year,
                has_zone=stamp.has_zone, kind=kind,
            )  # fmt: skip
        outer = fields.get("stamp")
        # Of nested stamps the one that leaves least open; the inner one (nearer to the writer) where they are equal.
        if outer is None or (stamp.has_zone, stamp.has_year) >= (outer.has_zone, outer.has_year):
            fields["stamp"] = stamp
        return True

    return take_stamp


@lru_cache(maxsize=16_384)
def _whole_second(names: tuple[str, ...], values: Values, kind: str) -> Stamp | None:
    """The stamp without its fraction: many lines share a second."""
    return stamp_of(dict(zip(names, values, strict=True)), kind)
