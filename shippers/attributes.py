"""What a source's settings state of all its lines: what is allowed there, and what this host adds."""

from collections.abc import Mapping
from typing import Final

_NUMBERS: Final = {"job.attempt": (0, 10**9 - 1), "rank": (0, 10**9 - 1), "time.year": (1970, 9999)}
_MAX_ZONE_HOURS: Final = 14


def stated(kind: str, attributes: Mapping[str, str], zone: str | None) -> dict[str, str]:
    """The attributes that go with the lines. `zone` is this host's, for stamps of which the settings say none."""
    said = {"kind": kind, **attributes}
    if zone is not None and "time.zone" not in said:
        # A container may keep another zone than its host: what follows of the lines themselves may correct it.
        said |= {"time.zone": zone, "time.inferred": "zone"}
    return said


def problem_in(kind: str, attributes: Mapping[str, str]) -> str | None:
    """What is wrong with the attributes of a source of this kind, with the key; None where all fit."""
    for key, value in attributes.items():
        if key in _NUMBERS:
            low, high = _NUMBERS[key]
            if not (value.isascii() and value.isdecimal() and len(value) < 10 and low <= int(value) <= high):
                return f'{key} is "{value}"; it must be a number, {low} to {high}'
        if key == "time.zone" and not is_zone(value):
            return f'time.zone is "{value}"; write it as +02:00, -0530, Z or UTC (at most 14 hours)'
        if key == "kind" and value != kind:
            return f'kind is "{value}", but the source is of kind "{kind}"; set kind beside attributes only'
    return None


def is_zone(text: str) -> bool:
    """Whether the text is an offset from UTC: `+02:00`, `-0530`, `Z` or `UTC`."""
    if text in ("Z", "UTC"):
        return True
    sign, rest = text[:1], text[1:]
    digits = rest[:2] + rest[3:] if rest[2:3] == ":" else rest
    if sign not in ("+", "-") or len(digits) != 4 or not (digits.isascii() and digits.isdecimal()):
        return False
    hours, minutes = int(digits[:2]), int(digits[2:])
    return minutes < 60 and hours * 60 + minutes <= _MAX_ZONE_HOURS * 60


def zone_text(offset_s: int) -> str:
    """An offset from UTC in seconds as `+HH:MM`."""
    hours, minutes = divmod(abs(offset_s) // 60, 60)
    return f"{'-' if offset_s < 0 else '+'}{hours:02}:{minutes:02}"
