"""How likely one event was before another whose certain bounds overlap with its own.

Each u99 stands for 99 of 100 errors; as of a normal distribution that is 2.576 standard deviations.
"""

from math import erf, hypot, sqrt
from typing import Final

_SIGMAS_OF_99: Final = 2.5758293035489004


def odds_before(gap_ns: float, u99_a_ns: float, u99_b_ns: float) -> float:
    """Probability that A was before B, which by best values came `gap_ns` after it."""
    sigma = hypot(u99_a_ns, u99_b_ns) / _SIGMAS_OF_99
    if sigma <= 0:
        return 0.5 if gap_ns == 0 else float(gap_ns > 0)
    return 0.5 * (1 + erf(gap_ns / (sigma * sqrt(2))))


def is_probable(gap_ns: float, u99_a_ns: float, u99_b_ns: float) -> bool:
    """Tell whether A may be called probably before B: the gap exceeds what both errors may be together."""
    return gap_ns > hypot(u99_a_ns, u99_b_ns)
