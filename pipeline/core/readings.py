"""What lines measure, kept by time so that one GPU or rank can be compared with its peers.

Of each measure a bucket of time keeps the number of readings, the sum of their logarithms and of the squares of these:
a step that takes thirty times as long hardly moves the mean of many, where few readings make the mean the spread shows
it, and whole numbers add up to the same in any order.
"""

from collections.abc import Mapping
from math import log, sqrt
from typing import Final

from msgspec import Struct, field

from schemas.records import Event

# The measure that an attribute gives, and by how much it is multiplied: times are in milliseconds.
_MEASURES: Final[Mapping[str, tuple[str, float]]] = {
    "step_ms": ("step_ms", 1), "step_seconds": ("step_ms", 1_000),
    "compute_ms": ("compute_ms", 1), "compute_seconds": ("compute_ms", 1_000),
    "data_ms": ("data_ms", 1), "data_seconds": ("data_ms", 1_000),
    "sm_clock_mhz": ("sm_clock_mhz", 1), "utilization_percent": ("utilization_percent", 1),
    "temperature_celsius": ("temperature_celsius", 1), "memory_used_mib": ("memory_used_mib", 1),
    "generation": ("pcie_generation", 1), "width": ("pcie_width", 1),
    "score": ("score", 1), "fastest_ms": ("fastest_ms", 1), "slowest_ms": ("slowest_ms", 1),
}  # fmt: skip
# Lines that give them. Width and generation mean other things in lines about other devices.
_EVENTS: Final = frozenset(
    (
        "gpu.telemetry", "gpu.temperature", "gpu.clocks_reduced", "gpu.hot", "gpu.pcie_link", "gpu.pcie_below_max",
        "gpu.uuid", "train.step", "train.timing", "train.score", "train.spread",
    )
)  # fmt: skip
# The label of lines that measure and say nothing else.
TELEMETRY: Final = "context/telemetry"
# The finest bucket; it doubles until all readings lie in so many.
BUCKET_S: Final = 60
MAX_BUCKETS: Final = 16
# Lines without a time are in a bucket of their own.
UNTIMED: Final = -1
# A ten-thousandth of the natural logarithm is exact to 0.01 %, and the squares of 10^8 readings fit into 64 bits.
SCALE: Final = 10_000
_LEAST: Final = 1e-3
_MOST: Final = 1e12


class Sum(Struct, array_like=True):
    """How many readings there are, the sum of `SCALE` times their logarithms, and the sum of the squares of that."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def take(self, other: "Sum") -> None:
        """Those of another one too."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        """The mean of the logarithms."""
        return self.total / self.count / SCALE

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        variance = max(0.0, self.squares / self.count - (self.total / self.count) ** 2)
        return sqrt(variance / self.count) / SCALE


class Readings(Struct, kw_only=True):
    """By measure and bucket of time. A bucket is `BUCKET_S` << `level` seconds wide, its number counts from 1970."""

    level: int = 0
    sums: dict[str, dict[int, Sum]] = field(default_factory=dict)

    def width_s(self) -> int:
        """The width of a bucket in seconds."""
        return BUCKET_S << self.level

    def add(self, measure: str, value: float, at_ns: int | None) -> None:
        """Take one reading; `at_ns` is when it was made."""
        number = UNTIMED if at_ns is None or at_ns < 0 else at_ns // (self.width_s() * 1_000_000_000)
        found = self.sums.setdefault(measure, {}).setdefault(number, Sum())
        logarithm = round(SCALE * log(min(max(value, _LEAST), _MOST)))
        found.take(Sum(1, logarithm, logarithm**2))
        self._narrow()

    def take(self, other: "Readings") -> None:
        """Those of another one too."""
        self._widen(max(self.level, other.level))
        for measure, buckets in other.sums.items():
            into = self.sums.setdefault(measure, {})
            for number, one in buckets.items():
                # A shift leaves the number of the untimed bucket as it is.
                into.setdefault(number >> (self.level - other.level), Sum()).take(one)
        self._narrow()

    def at_level(self, measure: str, level: int) -> dict[int, Sum]:
        """The buckets of a measure, as wide as those of a level that is not below its own. Not to be changed."""
        buckets = self.sums.get(measure, {})
        if level == self.level:
            return buckets
        wider: dict[int, Sum] = {}
        for number, one in buckets.items():
            wider.setdefault(number >> (level - self.level), Sum()).take(one)
        return wider

    def _widen(self, level: int) -> None:
        if level != self.level:
            self.sums = {measure: self.at_level(measure, level) for measure in self.sums}
            self.level = level

    def _narrow(self) -> None:
        """Widen the buckets until there are few; how wide depends on the first and the last reading alone."""
        first = last = UNTIMED
        for buckets in self.sums.values():
            for number in buckets:
                if number != UNTIMED:
                    first, last = number if first == UNTIMED else min(first, number), max(last, number)
        level = self.level
        while (last >> (level - self.level)) - (first >> (level - self.level)) >= MAX_BUCKETS:
            level += 1
        self._widen(level)


def of_event(event: Event) -> Readings | None:
    """What a line measures; None where it measures nothing."""
    if event.name not in _EVENTS:
        return None
    found = None
    for attribute, text in event.attributes.items():
        measure = _MEASURES.get(attribute)
        value = _number(text) if measure is not None else None
        if measure is not None and value is not None:
            found = found or Readings()
            # A share of zero is no smaller than one of a hundredth: idle moments do not outweigh the rest.
            value = max(value, 1) if attribute.endswith("_percent") else value
            found.add(measure[0], value * measure[1], event.aligned_time_unix_nano)
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text) if len(text) < 20 else -1.0
    except ValueError:
        return None
    return value if value >= 0 else None
