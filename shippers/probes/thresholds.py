"""When a measure is worth a line: thresholds as data (`thresholds.toml`), and what was told so far."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

State = Literal["began", "grew", "over"]
_FILE: Final = Path(__file__).with_name("thresholds.toml")


class Threshold(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measure. `line` is the THING of its lines, `event` what the signals make of them, `over_event` of its end.

    A `level` is told when it is above `tell_above`; a `count` when it gained more than that in one look. It is over
    when it stayed at or below `over_below` for `over_after_s`; until then it is told again only when it grew to
    `again_factor` times what was told (a count: what it gained since it began).
    """

    line: str
    event: str
    over_event: str = ""
    what: str
    unit: str
    kind: Literal["level", "count"] = "level"
    tell_above: float
    over_below: float = 0.0
    over_after_s: float = 0.0
    again_factor: float = 2.0


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: how often each source looks, single limits, the thresholds, and lists of names."""

    every_s: dict[str, float]
    limits: dict[str, float]
    threshold: dict[str, Threshold]
    names: dict[str, list[str]]
    waits_in: dict[str, list[str]]


class _Place(Struct, array_like=True):
    """What was told of one place. `below_s`: since when it has been below; None while it is not."""

    told: float
    total: float
    below_s: float | None = None


class Watch:
    """What was told of one measure, by place."""

    def __init__(self, rule: Threshold) -> None:
        self.rule = rule
        self.places: dict[str, _Place] = {}

    def see(self, place: str, value: float, now_s: float) -> State | None:
        """What to tell of a new value (of a count: what it gained since the last look); None for nothing."""
        known = self.places.get(place)
        if known is None:
            if value <= self.rule.tell_above:
                return None
            self.places[place] = _Place(value, value)
            return "began"
        known.total = known.total + value if self.rule.kind == "count" else value
        if value <= self.rule.over_below:
            return self._see_low(place, known, now_s)
        known.below_s = None
        if known.total >= known.told * self.rule.again_factor:
            known.told = known.total
            return "grew"
        return None

    def restore(self, place: str, told: float, total: float) -> None:
        """What was told before a restart."""
        self.places[place] = _Place(told, total)

    def total(self, place: str) -> float:
        """The value now; of a count what it gained since it began."""
        return self.places[place].total if place in self.places else 0.0

    def keep(self, seen: set[str]) -> list[str]:
        """Forget the places that are no more; gives those."""
        gone = [place for place in self.places if place not in seen]
        for place in gone:
            del self.places[place]
        return gone

    def _see_low(self, place: str, known: _Place, now_s: float) -> State | None:
        if known.below_s is None:
            known.below_s = now_s
        if now_s - known.below_s < self.rule.over_after_s:
            return None
        del self.places[place]
        return "over"


@cache
def thresholds() -> Thresholds:
    """The file of the release."""
    return msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), Thresholds)
