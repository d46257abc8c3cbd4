"""Figures as people read them: three digits that mean something, an interval beside each, never infinity."""

from math import floor, log10
from typing import Final

from pipeline.core.fleet.answers import Estimate

UNKNOWN: Final = "-"
_DIGITS: Final = 3
# From when on, how long, and its name.
_UNITS: Final = ((3 * 86_400, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min"), (0, 1, "s"))


def number(value: float | None) -> str:
    """Three significant digits, thousands apart; large numbers whole."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    after = max(0, _DIGITS - 1 - floor(log10(abs(value))))
    return f"{value:,.{min(after, 6)}f}"


def whole(value: float | None) -> str:
    """A whole number, thousands apart."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share in percent; one that is there is never 0 %, one that is not all never 100 %."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def estimate(found: Estimate | None) -> str:
    """`3.79 [3.43, 4.17]`; where only a bound is known `> 26.0`, where nothing is known a dash."""
    if found is None or (found.value is None and found.lo is None):
        return UNKNOWN
    if found.value is None:
        return f"> {number(found.lo)}"
    return f"{number(found.value)} {bounds(found)}"


def bounds(found: Estimate) -> str:
    """`[3.43, 4.17]`; `…` where there is no upper bound."""
    return f"[{number(found.lo)}, {'…' if found.hi is None else number(found.hi)}]"


def hours(value: float | None) -> str:
    """A time in the unit that reads best."""
    return UNKNOWN if value is None else seconds(value * 3600)


def seconds(value: float | None) -> str:
    """As `hours`, of seconds."""
    if value is None:
        return UNKNOWN
    size, unit = next((size, unit) for begin, size, unit in _UNITS if value >= begin)
    inside = value / size
    return f"{inside:,.0f} {unit}" if inside == round(inside) else f"{number(inside)} {unit}"
