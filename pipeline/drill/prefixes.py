"""How files stamp and wrap lines: kernel logs in all their shapes, and what launchers and collectors put in front."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from pipeline.drill.clocks import SECOND_NS, NodeClock, local, zone_text
from pipeline.drill.fleet import Node

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

KernelFormat = Literal["dmesg", "dmesg_T", "dmesg_iso", "kmsg", "syslog", "rsyslog", "journal_iso", "journal_precise",
                       "journal_json"]  # fmt: skip
# Formats that tell the time of day. The others need a reading of both clocks in the manifest.
WALL_FORMATS: Final[tuple[KernelFormat, ...]] = ("dmesg_T", "dmesg_iso", "syslog", "rsyslog", "journal_iso",
                                                 "journal_precise", "journal_json")  # fmt: skip
Formatter = Callable[[int, str], str]


def clock_time(clock: NodeClock, true_ns: int) -> str:
    """`15:36:05`."""
    at, _ = local(clock, true_ns)
    return f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"


def day(clock: NodeClock, true_ns: int) -> str:
    """`2026-08-10`."""
    at, _ = local(clock, true_ns)
    return f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}"


def iso(clock: NodeClock, true_ns: int, *, digits: int = 0, sep: str = " ", comma: str = ".") -> str:
    """`2026-08-10 15:36:05.123456` with so many digits."""
    at, rest = local(clock, true_ns)
    text = f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}{sep}{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{text}{comma}{rest // 10 ** (9 - digits):0{digits}d}" if digits else text


def syslog(clock: NodeClock, true_ns: int, *, digits: int = 0) -> str:
    """`Aug 10 15:36:05`."""
    at, rest = local(clock, true_ns)
    text = f"{_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{text}.{rest // 10 ** (9 - digits):0{digits}d}" if digits else text


def fabric_manager(clock: NodeClock, true_ns: int) -> str:
    """`[Aug 10 2026 15:36:05]`."""
    at, _ = local(clock, true_ns)
    return f"[{_MONTHS[at.tm_mon - 1]} {at.tm_mday:02d} {at.tm_year} {clock_time(clock, true_ns)}]"


def utc(clock: NodeClock, true_ns: int, digits: int = 9) -> str:
    """`2026-08-10T07:36:05.123456789Z`."""
    shifted = replace(clock, zone_s=0)
    return iso(shifted, true_ns, digits=digits, sep="T") + "Z"


def kernel_seconds(clock: NodeClock, true_ns: int) -> str:
    """`[56701.234567]`, padded as the kernel pads it."""
    seconds, rest = divmod(clock.kernel_ns(true_ns), SECOND_NS)
    return f"[{seconds:5d}.{rest // 1000:06d}]"


def rebooted(clock: NodeClock, boot_ns: int) -> NodeClock:
    """The clocks after a reboot: the kernel counts from then on."""
    return replace(clock, boot_ns=boot_ns)


def kernel_formatter(kind: KernelFormat, node: Node, clock: NodeClock, read_ns: int, callers: bool) -> Formatter:
    """Stamps kernel lines of a node in one format; `read_ns` is when somebody ran dmesg."""
    name = node.name
    sequence = 4000

    def dmesg(t: int, text: str) -> str:
        return f"{kernel_seconds(clock, t)} {'[  T1946] ' if callers else ''}{text}"

    def as_wall(t: int) -> NodeClock:
        shift = clock.kernel_as_wall_ns(t, read_ns) - clock.wall_ns(t)
        return replace(clock, offset_ns=clock.offset_ns - shift)

    def dmesg_t(t: int, text: str) -> str:
        at, _ = local(as_wall(t), t)
        time_of_day = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
        return f"[{_DAYS[at.tm_wday]} {_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} {time_of_day} {at.tm_year}] {text}"

    def dmesg_iso(t: int, text: str) -> str:
        return f"{iso(as_wall(t), t, digits=6, sep='T', comma=',')}{zone_text(clock.zone_s)} {text}"

    def kmsg(t: int, text: str) -> str:
        nonlocal sequence
        sequence += 1
        level = 3 if "NVRM: Xid" in text or "rror" in text else 6
        caller = "caller=T1946" if callers else ""
        return f"{level},{sequence},{clock.kernel_ns(t) // 1000},-{',' + caller if caller else ''};{text}"

    def journal_json(t: int, text: str) -> str:
        shown_us = clock.wall_ns(t) // 1000
        return json.dumps({
            "__REALTIME_TIMESTAMP": str(shown_us + 800), "_SOURCE_MONOTONIC_TIMESTAMP": str(clock.kernel_ns(t) // 1000),
            "_BOOT_ID": node.boot_id.replace("-", ""), "_HOSTNAME": name, "_TRANSPORT": "kernel", "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": text,
        })  # fmt: skip

    short = node.short
    formats: dict[KernelFormat, Formatter] = {
        "dmesg": dmesg,
        "dmesg_T": dmesg_t,
        "dmesg_iso": dmesg_iso,
        "kmsg": kmsg,
        "journal_json": journal_json,
        "syslog": lambda t, text: f"{syslog(clock, t)} {short} kernel: {kernel_seconds(clock, t)} {text}",
        "rsyslog": lambda t, text: (
            f"{iso(clock, t, digits=6, sep='T')}{zone_text(clock.zone_s)} {name} kernel: "
            f"{kernel_seconds(clock, t)} {text}"
        ),
        "journal_iso": lambda t, text: (
            f"{iso(clock, t, sep='T')}{zone_text(clock.zone_s, colon=False)} {name} kernel: {text}"
        ),
        "journal_precise": lambda t, text: f"{syslog(clock, t, digits=6)} {short} kernel: {text}",
    }
    return formats[kind]


def cri(clock: NodeClock, true_ns: int, text: str) -> str:
    """A line of a container's file as containerd writes it."""
    zone = "Z" if clock.zone_s == 0 else zone_text(clock.zone_s)
    return f"{iso(clock, true_ns, digits=9, sep='T')}{zone} stderr F {text}"


def docker_json(clock: NodeClock, true_ns: int, text: str) -> str:
    """The same by Docker."""
    return json.dumps({"log": text + "\n", "stream": "stderr", "time": utc(clock, true_ns)})


def kubectl(clock: NodeClock, true_ns: int, text: str) -> str:
    """`kubectl logs --timestamps`."""
    return f"{utc(clock, true_ns)} {text}"
