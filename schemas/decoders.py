"""Works further attributes out of those that a line gives. A signal names one with `decode`; all are pure."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from schemas import nvlink4, nvlink5

Attributes = Mapping[str, str]


class Decoder(NamedTuple):
    """The attributes that a decoder may add, and how it finds them."""

    names: tuple[str, ...]
    decode: Callable[[Attributes], dict[str, str]]


# Bits of NVML's clocks event reasons.
_CLOCK_REASONS: Final[dict[str, int]] = {
    "idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
_NVLINK5: Final = frozenset(str(number) for number in range(144, 151))
_PRINTED: Final[dict[str, str]] = {"Fatal": "fatal", "Nonfatal": "non-fatal"}


def _nvlink(attributes: Attributes) -> dict[str, str]:
    xid = attributes.get("xid", "")
    if xid != "74" and xid not in _NVLINK5:
        return {}
    words = _words(attributes.get("registers", ""))
    if xid == "74":
        kind = nvlink4.decode(words)
        return {} if kind is None else {"nvlink_reason": kind.kind, "nvlink_look_at": kind.look_at}
    printed = _PRINTED.get(attributes.get("nvlink_printed", ""))
    if printed is None:
        return {}
    unit = attributes.get("nvlink_unit", "")
    found = nvlink5.decode(int(xid), unit, words[0], words[1] if len(words) > 1 else 0) if words else None
    if found is None:
        return {"nvlink_severity": printed}
    told = {"nvlink_severity": found.severity, "nvlink_action": found.action, "nvlink_look_at": found.look_at}
    if found.reason is not None:
        told["nvlink_reason"] = str(found.reason)
    return told


def _words(text: str) -> list[int]:
    return [int(word, 16) for word in text.replace(",", " ").split()]


def _clocks(attributes: Attributes) -> dict[str, str]:
    mask = int(attributes.get("clock_reasons", "0x0"), 16)
    return {f"clocks_{name}": "active" for name, bit in _CLOCK_REASONS.items() if mask & bit}


DECODERS: Final[dict[str, Decoder]] = {
    "nvlink": Decoder(("nvlink_severity", "nvlink_action", "nvlink_look_at", "nvlink_reason"), _nvlink),
    "clocks": Decoder(tuple(f"clocks_{name}" for name in _CLOCK_REASONS), _clocks),
}
