"""What of readings is worth a line: thresholds with hysteresis, growth and change, as `changes.toml` has them. Pure."""

import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from shippers.nvml.messages import Value

SECOND_NS: Final = 10**9
OVER: Final = "gpu.over"
_MAX_STEPS: Final = 720  # of a counter that is watched as a rate

Readings = Mapping[str, Value]


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `changes.toml`."""

    thing: str
    reading: str
    kind: Literal["counter", "level", "bits", "value"]
    says: str
    reference: str
    by: int = 1
    within_s: float = 0
    every_s: float = 0
    on: int = 1
    off: int = 0
    below: bool = False
    mask: int = 0
    for_s: float = 0
    normal: list[str] = []
    only: str = ""
    beside: list[str] = []
    sets: dict[str, str] = {}


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: list[Change]


class Known(Struct, kw_only=True, omit_defaults=True):
    """What was told of one reading of one GPU: survives a restart.

    `base` is the count that was told last, `value` the text; `on_ns` is when a level was passed, 0 where it is not.
    """

    base: int | None = None
    value: str = ""
    is_on: bool = False

    def tells(self) -> bool:
        """Whether it must be known after a restart."""
        return bool(self.base or self.value or self.is_on)


class _Watched(Struct, kw_only=True):
    """What is only known while the process lives: since when a level is passed the other way, when it was told."""

    turning_ns: int = 0
    on_ns: int = 0
    told_ns: int = 0
    steps: deque[tuple[int, int]] = field(default_factory=deque)


Line = tuple[str, dict[str, Value]]


def changes() -> list[Change]:
    """The changes of the release."""
    text = resources.files("shippers.nvml").joinpath("changes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _File).change


class Judge:
    """All GPUs. `known` is by GPU and reading."""

    def __init__(self, table: Iterable[Change], memo: str = "") -> None:
        self._table = list(table)
        self._known = _known_of(memo)
        self._remembered = frozenset(self._known)
        self._watched: dict[tuple[str, str], _Watched] = {}

    def memo(self) -> str:
        """What to know after a restart: of each GPU what is not as of a healthy one."""
        told = {gpu: {name: one for name, one in by.items() if one.tells()} for gpu, by in self._known.items()}
        return msgspec.json.encode(told).decode()

    def is_news(self, gpu: str, name: str, value: str) -> bool:
        """Whether something is another than when it was told last; it is remembered. Empty is as of a healthy GPU."""
        known = self._known.setdefault(gpu, {}).setdefault(name, Known())
        before, known.value = known.value, value
        return before != value

    def take(self, gpu: str, readings: Readings, at_ns: int) -> Iterator[Line]:
        """What is new of a GPU. A reading that is missing leaves what was told as it is."""
        for change in self._table:
            if change.only and not readings.get(change.only):
                self._watched.pop((gpu, _name(change, "")), None)
                continue
            for suffix, value in _values(readings, change.reading):
                for thing, values in self._one(change, gpu, suffix, value, at_ns):
                    near = {name: readings[name] for name in change.beside if name in readings}
                    link = {"link": suffix} if suffix else {}
                    yield thing, {**link, **values, **near, **change.sets}

    def _one(self, change: Change, gpu: str, suffix: str, value: Value, at_ns: int) -> Iterator[Line]:
        name = _name(change, suffix)
        by_name = self._known.setdefault(gpu, {})
        # Of a GPU that was told of before, what is not in the memo was zero.
        known = by_name.setdefault(name, Known(base=0 if gpu in self._remembered and not change.within_s else None))
        watched = self._watched.setdefault((gpu, name), _Watched())
        if change.kind == "value":
            yield from _of_value(change, known, str(value))
        elif isinstance(value, str):
            return
        elif change.kind == "counter":
            yield from _of_counter(change, known, watched, int(value), at_ns)
        else:
            yield from _of_level(change, known, watched, int(value), at_ns)


def _of_value(change: Change, known: Known, value: str) -> Iterator[Line]:
    before, known.value = known.value, value
    if value != before and (before or value not in change.normal):
        yield change.thing, {change.says: value, **({"before": before} if before else {})}


def _of_counter(change: Change, known: Known, watched: _Watched, value: int, at_ns: int) -> Iterator[Line]:
    base = _slowly(change, watched, value, at_ns) if change.within_s else known.base
    if base is None or value < base:
        # First sight, or counted anew since the driver was loaded.
        known.base = None if change.within_s else value
        watched.steps = deque([(at_ns, value)])
        return
    added = value - base
    if added < change.by or (watched.told_ns and at_ns - watched.told_ns < change.every_s * SECOND_NS):
        return
    known.base = None if change.within_s else value
    watched.told_ns, watched.steps = at_ns, deque([(at_ns, value)])
    yield change.thing, {change.says: value, "added": added}


def _slowly(change: Change, watched: _Watched, value: int, at_ns: int) -> int | None:
    """What a rate was at the beginning of its window; None at first sight."""
    steps = watched.steps
    if not steps:
        return None
    steps.append((at_ns, value))
    # The newest step from before the window stays: growth since then is of the window, and a little more.
    while len(steps) > 2 and (steps[1][0] <= at_ns - change.within_s * SECOND_NS or len(steps) > _MAX_STEPS):
        steps.popleft()
    return steps[0][1]


def _of_level(change: Change, known: Known, watched: _Watched, value: int, at_ns: int) -> Iterator[Line]:
    passed = _passed(change, value, is_on=known.is_on)
    if passed == known.is_on:
        watched.turning_ns = 0
        return
    watched.turning_ns = watched.turning_ns or at_ns
    if at_ns - watched.turning_ns < change.for_s * SECOND_NS:
        return
    since_ns, watched.turning_ns = watched.turning_ns, 0
    known.is_on = passed
    if passed:
        watched.on_ns = since_ns
        yield change.thing, {change.says: hex(value) if change.kind == "bits" else value}
        return
    lasted = {"lasted_s": (at_ns - watched.on_ns) // SECOND_NS} if watched.on_ns else {}
    yield OVER, {"what": change.thing, **lasted}


def _passed(change: Change, value: int, *, is_on: bool) -> bool:
    """Whether a level is passed; between `off` and `on` it stays as it was."""
    if change.kind == "bits":
        return bool(value & change.mask)
    if change.below:
        return value <= change.on or (is_on and value < change.off)
    return value >= change.on or (is_on and value > change.off)


def _values(readings: Readings, name: str) -> list[tuple[str, Value]]:
    """The reading of that name, or one for each link: `name.LINK`."""
    if name in readings:
        return [("", readings[name])]
    prefix = f"{name}."
    return [(key.removeprefix(prefix), value) for key, value in readings.items() if key.startswith(prefix)]


def _name(change: Change, suffix: str) -> str:
    return f"{change.reading}.{suffix}" if suffix else change.reading


def _known_of(memo: str) -> dict[str, dict[str, Known]]:
    try:
        return msgspec.json.decode(memo, type=dict[str, dict[str, Known]]) if memo else {}
    except msgspec.DecodeError:
        return {}
