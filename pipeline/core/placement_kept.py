"""Who runs where, kept until something new is said of it: of a large job it is worked out of very many claims."""

from typing import Final

from pipeline.core.placement import Facts, PlacementMap
from pipeline.core.times import SECOND_NS

MANY_CLAIMS: Final = 10_000


class PlacementKept:
    """The map of one investigation. Of a large job it is made ahead, while nobody waits for it."""

    def __init__(self) -> None:
        self._map: PlacementMap | None = None
        self._size: tuple[int, ...] = ()
        self._preferred: list[str] = []
        self._made_ns = self._asked_ns = 0

    def map(self, facts: Facts, preferred: list[str], now_ns: int, *, final: bool) -> PlacementMap:
        """Who runs where. Where only times changed since, one that is not `final` may be the last one."""
        is_large = len(facts.claims) >= MANY_CLAIMS
        if self._map is None or final or not is_large or (self._size, self._preferred) != (facts.size, preferred):
            self._map = PlacementMap(facts, preferred)
            self._size, self._preferred, self._made_ns = facts.size, preferred, now_ns
        return self._map

    def is_due(self, facts: Facts, pause_ns: int, now_ns: int) -> bool:
        """Whether it is time to look whether a new one is to be made ahead: thousands of reporters ask every second."""
        if len(facts.claims) < MANY_CLAIMS or now_ns - self._asked_ns < SECOND_NS:
            return False
        self._asked_ns = now_ns
        return now_ns - self._made_ns >= pause_ns
