"""What a source's settings state of all its lines: what is allowed there, and what this host adds."""

from collections.abc import Mapping
from typing import Final

from schemas.zones import zone_offset_s

_NUMBERS: Final = {"job.attempt": (0, 10**9 - 1), "rank": (0, 10**9 - 1), "time.year": (1970, 9999)}


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
        if key == "time.zone" and zone_offset_s(value) is None:
            return f'time.zone is "{value}"; write it as +02:00, -0530, Z or UTC (at most 14 hours)'
        if key == "kind" and value != kind:
            return f'kind is "{value}", but the source is of kind "{kind}"; set kind beside attributes only'
    return None
