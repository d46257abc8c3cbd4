"""What somebody may have meant who named something that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_MOST: Final = 6
# Two names of an id's length that are so much alike differ in a few letters.
_ALIKE: Final = 0.7


def near(wanted: str, known: Iterable[str]) -> list[str]:
    """The known names that are spelled like the wanted one, the most like first, then those that it is a part of."""
    by_small = {name.lower(): name for name in sorted(known)}
    small = wanted.lower()
    alike = get_close_matches(small, by_small, n=_MOST, cutoff=_ALIKE)
    inside = [name for name in by_small if small and (small in name or name in small)]
    return [by_small[name] for name in dict.fromkeys((*alike, *inside))][:_MOST]
