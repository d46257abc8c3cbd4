"""Orders of pairs of events on two nodes, by how far apart they truly are: how many are decided, how many wrongly."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tests.bench.clock_scenarios import Answers
from tests.clock_channels import MS, US, Floats, Ints

BANDS: Final = {
    "10-100 us": (10 * US, 100 * US), "0.1-0.3 ms": (100 * US, 300 * US), "0.3-1 ms": (300 * US, MS),
    "1-3 ms": (MS, 3 * MS), "3-10 ms": (3 * MS, 10 * MS), "10-100 ms": (10 * MS, 100 * MS),
}  # fmt: skip
_AT_ONCE: Final = 500_000


class Orders(NamedTuple):
    """Counts of one band. Certain: by certain bounds. Probable: by `odds.is_probable`, or certain."""

    pairs: int
    certain: int
    certain_wrong: int
    probable: int
    probable_wrong: int
    last_wrong: int  # of all pairs, by the last sample's middle
    raw_wrong: int  # of all pairs, by the clocks as they are


def orders(answers: Sequence[Answers], pairs: int, seed: int) -> dict[str, Orders]:
    """Events A, and B so much later on another node, dated by the same moment's answers; gaps even in logarithm."""
    rng = np.random.default_rng([seed, 7])
    length = min(len(one.lo) for one in answers)
    columns = {
        "error": np.array([one.errors["polygon clock"][:length] for one in answers]),
        "lo": np.array([one.lo[:length] for one in answers]), "hi": np.array([one.hi[:length] for one in answers]),
        "u99": np.array([one.u99[:length] for one in answers]),
        "last": np.array([one.errors["last sample"][:length] for one in answers]),
        "raw": np.array([one.errors["no correction"][:length] for one in answers]),
    }  # fmt: skip
    found = {}
    for name, (least, most) in BANDS.items():
        total = np.zeros(7, dtype=np.int64)
        for done in range(0, pairs, _AT_ONCE):
            total += _count(rng, columns, least, most, min(_AT_ONCE, pairs - done))
        found[name] = Orders(*total.tolist())
    return found


def _count(rng: np.random.Generator, columns: dict[str, Floats], least: float, most: float, pairs: int) -> Ints:
    nodes, length = columns["error"].shape
    a = rng.integers(nodes, size=pairs)
    b = (a + rng.integers(1, nodes, size=pairs)) % nodes
    moment = rng.integers(length, size=pairs)
    gap = np.exp(rng.uniform(np.log(least), np.log(most), pairs))

    def of(name: str) -> tuple[Floats, Floats]:
        return columns[name][a, moment], columns[name][b, moment]

    error, lo, hi, u99 = of("error"), of("lo"), of("hi"), of("u99")
    last, raw = of("last"), of("raw")
    certain = hi[0] < gap + lo[1]
    certain_wrong = gap + hi[1] < lo[0]
    seen = gap + error[1] - error[0]
    by_odds = np.abs(seen) > np.hypot(*u99)
    probable = certain | certain_wrong | by_odds
    wrong = certain_wrong | (~certain & by_odds & (seen < 0))
    counts = (
        np.ones(pairs), certain | certain_wrong, certain_wrong, probable, wrong,
        gap + last[1] - last[0] <= 0, gap + raw[1] - raw[0] <= 0,
    )  # fmt: skip
    return np.array([np.count_nonzero(count) for count in counts], dtype=np.int64)
