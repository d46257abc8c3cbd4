"""Offsets from UTC as text: one rule for settings, manifests and the stamps of lines."""

from typing import Final

MAX_ZONE_S: Final = 14 * 3600


def zone_offset_s(zone: str | None) -> int | None:
    """Seconds east of UTC of `Z`, `UTC`, `+08`, `+0800` or `+08:00`; None for anything else, and beyond 14 hours."""
    if not zone:
        return None
    if zone in ("Z", "UTC"):
        return 0
    sign, rest = zone[0], zone[1:]
    digits = rest[:2] + rest[3:] if len(rest) == 5 and rest[2] == ":" else rest
    if sign not in "+-" or len(digits) not in (2, 4) or not (digits.isascii() and digits.isdecimal()):
        return None
    minutes = int(digits[2:] or 0)
    seconds = int(digits[:2]) * 3600 + minutes * 60
    if minutes > 59 or seconds > MAX_ZONE_S:
        return None
    return -seconds if sign == "-" else seconds


def zone_text(zone_s: int) -> str:
    """Seconds east of UTC as +HH:MM."""
    hours, minutes = divmod(abs(zone_s) // 60, 60)
    return f"{'-' if zone_s < 0 else '+'}{hours:02}:{minutes:02}"
