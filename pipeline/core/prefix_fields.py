"""What the groups of prefixes say of a line: its stamp, its node, its rank."""

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pipeline.core.stamps import Stamp, stamp_of, trusted_digits
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


# Takes what needs more than a copy: False means that the prefix is none after all.
Special = Callable[[Values, Fields], bool]


class Takers(NamedTuple):
    """How the values of the groups of one or more prefixes become fields."""

    specials: tuple[Special, ...]
    texts: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, int], ...]
    own_ranks: tuple[int, ...]

    @property
    def in_order(self) -> bool:
        """Whether all at once gives what one prefix after the other gives: what they say of a rank depends on it."""
        ranks = [at for name, at in self.numbers if name == "rank"]
        return not self.own_ranks or (len(self.own_ranks) == 1 and max(ranks, default=-1) < self.own_ranks[0])

    def take(self, values: Values, fields: Fields) -> bool:
        """Keep what the values say; False where a stamp is no possible time."""
        for special in self.specials:
            if not special(values, fields):
                return False
        for name, at in self.texts:
            value = values[at]
            if value is not None:
                fields[name] = value
        for name, at in self.numbers:
            value = values[at]
            if value is not None:
                fields[name] = int(value)
        for at in self.own_ranks:
            value = values[at]
            if value is not None:
                # Inside a group this is the rank in the group; before torch 2.2 nothing else says the rank.
                fields.setdefault("pg_rank" if "rank" in fields else "rank", int(value))
        return True


def takers_of(prefixes: Iterable[Prefix]) -> Takers:
    """How to take the values of prefixes that stand one behind the other."""
    specials, texts, numbers, own_ranks = list[Special](), [], [], []
    at = 0
    for prefix in prefixes:
        places = {name: number - 1 + at for name, number in prefix.pattern.groupindex.items()}
        at += prefix.pattern.groups
        if prefix.entry.stamp:
            specials.append(_stamp_taker(prefix, places))
        for name, place in sorted(places.items(), key=lambda pair: pair[1]):
            if name in _INT_FIELDS:
                numbers.append((name, place))
            elif name in _FIELDS:
                texts.append((_FIELDS[name], place))
            elif name == "own_rank":
                own_ranks.append(place)
    return Takers(tuple(specials), tuple(texts), tuple(numbers), tuple(own_ranks))


@lru_cache(maxsize=1)
def all_takers() -> dict[str, Takers]:
    """The takers of every prefix that stands alone, by the name of its entry."""
    return {prefix.entry.name: takers_of([prefix]) for prefix in load_prefixes().prefixes}


def _stamp_taker(prefix: Prefix, places: dict[str, int]) -> Special:
    if "boot" in places or "boot_us" in places:
        return _boot_taker(places.get("boot"), places.get("boot_us"))
    kind = prefix.entry.name
    fraction = places.get("fraction", -1) if prefix.entry.fraction == "keep" else -1
    names = tuple(name for name in places if name != "fraction")
    chosen = [places[name] for name in names]
    pick: Any = itemgetter(*chosen) if len(chosen) > 1 else lambda values: tuple(values[at] for at in chosen)
    whole_second = _whole_seconds(kind, names)

    def take_stamp(values: Values, fields: Fields) -> bool:
        stamp = whole_second(pick(values))
        if stamp is None:
            return False
        digits = values[fraction] if fraction >= 0 else None
        if digits:
            digits = digits[:_DIGITS]
            unit_ns = _RESOLUTION_NS[len(digits)]
            resolution_ns = _RESOLUTION_NS[trusted_digits(digits)]
            stamp = Stamp(
                ns=stamp.ns + int(digits) * unit_ns, resolution_ns=resolution_ns, has_year=stamp.has_year,
                has_zone=stamp.has_zone, kind=kind, zone_s=stamp.zone_s,
            )  # fmt: skip
        if "stamp" in fields:
            note_stamp(stamp, fields)
        else:
            fields["stamp"] = stamp
        return True

    return take_stamp


@cache
def _whole_seconds(kind: str, names: tuple[str, ...]) -> Callable[[Values], Stamp | None]:
    """Makes stamps without their fractions of the values of these groups. Many lines, of any shape, share a second."""

    @lru_cache(maxsize=4_096)
    def whole_second(parts: Values) -> Stamp | None:
        return stamp_of(dict(zip(names, parts, strict=True)), kind)

    return whole_second


def _boot_taker(boot: int | None, boot_us: int | None) -> Special:
    def take_boot(values: Values, fields: Fields) -> bool:
        if boot is not None and (seconds := values[boot]) is not None:
            fields["boot_ns"] = int(seconds.replace(".", "")) * 1000
            fields.setdefault("process", "kernel")
        elif boot_us is not None and (microseconds := values[boot_us]) is not None:
            fields["boot_ns"] = int(microseconds) * 1000
            fields["process"] = "kernel"
        return True

    return take_boot


def note_stamp(stamp: Stamp, fields: Fields) -> None:
    """Of nested stamps the one that says most counts; the inner one (nearer to the writer) where they are equal."""
    outer = fields.get("stamp")
    if outer is None:
        fields["stamp"] = stamp
    elif stamp.said >= outer.said:
        fields["stamp"], fields["other"] = stamp, outer
    else:
        fields["other"] = stamp
