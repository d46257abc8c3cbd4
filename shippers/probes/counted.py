"""Counters and levels of this machine as lines: what a probe of them needs beside reading."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct

from shippers.pieces import Moment
from shippers.probes.probe import said
from shippers.probes.thresholds import Watch, thresholds
from shippers.probes.tree import Tree


class _Memo(Struct, omit_defaults=True):
    """What is known after a restart: what is going on, by measure and place, and counters that are kept."""

    told: dict[str, dict[str, tuple[float, float]]] = {}
    counters: dict[str, int] | None = None
    states: dict[str, str] | None = None


class Counters:
    """What counters gained since the last look; what is new since then began at 0.

    At the first look of all nothing has gained anything: what happened before is not known to be new.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._now: dict[str, int] = {}
        self._is_first = True

    def gain(self, name: str, value: int) -> int:
        """What this counter gained."""
        self._now[name] = value
        if self._is_first:
            return 0
        before = self._last.get(name, 0)
        return value - before if value >= before else value  # it was set back, as by a reboot

    def end_look(self) -> None:
        """All counters were read; those that were not are no more."""
        self._last, self._now, self._is_first = self._now, {}, False

    def start_from(self, last: dict[str, int]) -> None:
        """Go on from counters that were kept."""
        self._last, self._is_first = dict(last), False

    def kept(self) -> dict[str, int] | None:
        """The counters that are not 0; None before the first look."""
        return None if self._is_first else {name: value for name, value in self._last.items() if value}


class HostProbe:
    """A probe of counters below a root. A subclass says what it measures by `level`, `count` and `tell`."""

    name: ClassVar[str]
    may_hang: ClassVar[bool] = False
    keeps_counters: ClassVar[bool] = False  # what they gain while the agent is down is told after its start

    def __init__(self, root: str = "/") -> None:
        self.tree = Tree(root)
        self.every_s = thresholds().every_s[self.name]
        self.counters = Counters()
        self.states: dict[str, str] = {}  # by place, as last told; kept over a restart
        self._watches: dict[str, Watch] = {}
        self._lines: list[str] = []
        self.moment = Moment(observed_ns=0, mono_ns=0, wall_ns=0)
        self._now_s = 0.0
        self._last_s: float | None = None

    def open(self, memo: str) -> None:
        """Go on from what was told before the agent was started again."""
        try:
            known = msgspec.json.decode(memo, type=_Memo) if memo else _Memo()
        except msgspec.DecodeError:
            known = _Memo()
        for measure, places in known.told.items():
            if measure in thresholds().threshold:
                for place, (told, total) in places.items():
                    self._watch(measure).restore(place, told, total)
        if known.counters is not None and self.keeps_counters:
            self.counters.start_from(known.counters)
        self.states = dict(known.states or {})

    def look(self, moment: Moment) -> Sequence[str]:
        """What has changed."""
        self.moment = moment
        self._now_s = moment.mono_ns / 1e9
        self._lines = []
        self.measure()
        self.counters.end_look()
        self._last_s = self._now_s
        return self._lines

    def measure(self) -> None:
        """Read what there is. Raises Absent, Refused."""
        raise NotImplementedError

    def memo(self) -> str:
        """What goes on, what was told last, and the counters that are kept."""
        told = {
            name: {place: (each.told, each.total if watch.rule.kind == "count" else each.told)
                   for place, each in watch.places.items()}
            for name, watch in self._watches.items() if watch.places
        }  # fmt: skip
        counters = self.counters.kept() if self.keeps_counters else None
        if not told and not counters and not self.states:
            return ""
        return msgspec.json.encode(_Memo(told, counters, self.states or None), order="sorted").decode()

    def close(self) -> None:
        """Nothing is open."""

    @property
    def now_s(self) -> float:
        """When this look happens, on the monotonic clock."""
        return self._now_s

    @property
    def elapsed_s(self) -> float | None:
        """Seconds since the look before; None at the first."""
        return None if self._last_s is None else max(1e-3, self._now_s - self._last_s)

    def watched(self, measure: str, place: str, value: float, more: Callable[[], dict[str, object]]) -> None:
        """See a value, and tell it where it is worth it; `more` gives what else the line says, if there is one."""
        watch = self._watch(measure)
        state = watch.see(place, value, self._now_s)
        if state is not None:
            self.tell(watch.rule.line, state=state, **more())

    def total(self, measure: str, place: str) -> int:
        """What a count gained since it began."""
        return int(self._watch(measure).total(place))

    def is_on(self, measure: str, place: str) -> bool:
        """Whether a measure was told and is not over."""
        return place in self._watch(measure).places

    def places(self, measure: str) -> list[str]:
        """Where a measure was told and is not over."""
        return list(self._watch(measure).places)

    def drop_gone(self, measure: str, seen: set[str]) -> list[str]:
        """Forget what goes on at places that are no more; gives those."""
        return self._watch(measure).keep(seen)

    def tell(self, thing: str, **values: object) -> None:
        """One line."""
        self._lines.append(said(thing, **values))

    def tell_raw(self, line: str) -> None:
        """One line that is written already."""
        self._lines.append(line)

    def _watch(self, measure: str) -> Watch:
        if measure not in self._watches:
            self._watches[measure] = Watch(thresholds().threshold[measure])
        return self._watches[measure]
