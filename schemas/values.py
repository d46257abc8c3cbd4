"""How the attributes of signals are written: one spelling per meaning, always as text."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final


@lru_cache(maxsize=4096)
def pci(text: str) -> str:
    """A PCI address in any spelling as dddd:bb:dd.f, lower case, function 0 where none is given."""
    parts = text.lower().removeprefix("gpu").split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    device, _, function = parts[-1].partition(".")
    return f"{int(parts[0], 16):04x}:{int(parts[1], 16):02x}:{int(device, 16):02x}.{function or '0'}"


@lru_cache(maxsize=4096)
def busid(text: str) -> str:
    """NCCL's packed hexadecimal busId (domain, bus, device, function) as dddd:bb:dd.f."""
    packed = int(text, 16)
    return f"{packed >> 20:04x}:{packed >> 12 & 0xFF:02x}:{packed >> 4 & 0xFF:02x}.{packed & 0xF:x}"


def _integer(text: str) -> str:
    if text.isdecimal() and text.isascii() and len(text) < 19 and (text[0] != "0" or text == "0"):
        return text
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(f"{text[:20]} is not a 64-bit number")
    return str(number)


def _pid(text: str) -> str:
    number = _integer(text)
    return "" if number == "0" else number


def _process(text: str) -> str:
    return "" if text == "<unknown>" else text.strip()


def _aer(text: str) -> str:
    if text.startswith("Correct"):
        return "corrected"
    return "nonfatal" if "Non-Fatal" in text else "fatal"


def _requester(text: str) -> str:
    """A PCI requester id (bus, device, function in 16 bits) as 0000:bb:dd.f; nothing where it is zero."""
    number = int(text, 16)
    return f"0000:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}" if number else ""


def _oom(text: str) -> str:
    return "memcg" if text.startswith("Memory cgroup") else "global"


def _lower(text: str) -> str:
    return text.lower()


def _number(text: str) -> str:
    """A decimal number as it is written; raises ValueError for anything else."""
    text = text.strip()
    if "," in text:
        text = text.replace(",", "")
    float(text)
    return text


def _utc(text: str) -> str:
    """Seconds since 1970 as ISO 8601 writes a time."""
    return datetime.fromtimestamp(int(text), UTC).isoformat()


def _hexadecimal(text: str) -> str:
    return f"0x{int(text, 16):x}"


# Types of numbers with a unit: the name of the type is the unit.
UNITS: Final = (
    "seconds", "ms", "us", "ns", "bytes", "kib", "mib", "gib", "celsius", "watts", "percent", "mb_per_s", "gb_per_s",
    "mhz",
)  # fmt: skip

CONVERTERS: Final[dict[str, Callable[[str], str]]] = {
    "int": _integer,
    "pid": _pid,
    "aer": _aer,
    "oom": _oom,
    "process": _process,
    "pci": pci,
    "busid": busid,
    "requester": _requester,
    "lower": _lower,
    "text": str.strip,
    "hex": _hexadecimal,
    "decimal": _number,
    "utc": _utc,
    **dict.fromkeys(UNITS, _number),
}
