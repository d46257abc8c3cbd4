"""What `check` finds wrong, each with what to do."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from shippers.checked_sources import KernelLog, ReadSource
from shippers.config import Config

_WIDE_NS: Final = 1_000_000


class Problem(Struct, frozen=True, kw_only=True):
    """What is wrong, and what to do about it."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}; {self.do}"


def problem_of(text: str, otherwise: str) -> Problem:
    """A text that says behind a semicolon what to do; `otherwise` where it does not."""
    what, _, do = text.partition("; ")
    return Problem(what=what, do=do or otherwise)


def source_problems(sources: Sequence[ReadSource]) -> list[Problem]:
    """Sources that the settings name and of which nothing is read, and files that cannot be read.

    What the agent would measure itself and this machine does not have is no problem, nor is a glob that no file matches
    yet: those of a job come with the job.
    """
    problems = []
    for each in sources:
        reason, _, remedy = (each.reasons[0] if each.reasons else "").partition("; ")
        if each.refused:
            what = f"source {each.name} cannot be read: {reason}"
            if each.is_glob and each.on + each.refused > 1:
                what = f"{each.refused:,} files of source {each.name} cannot be read: {reason}"
            problems.append(Problem(what=what, do=_to_read(each, reason, remedy)))
        elif each.off and not each.on and not each.built_in and not each.is_empty:
            do = f"correct path in [[source]] {each.name}, or leave it: the agent reads it once it is there"
            problems.append(Problem(what=f"source {each.name} has nothing to read: {reason}", do=do))
    return problems


def kernel_problems(kernel_log: KernelLog | None, sources: Sequence[ReadSource]) -> list[Problem]:
    """A kernel's log that should be read and is not: it is no choice of the settings."""
    if kernel_log != "missing":
        return []
    do = (
        'add a [[source]] with type = "kmsg", kind = "kernel", path = "/dev/kmsg" (CAP_SYSLOG; a container: device), '
        'or one with kind = "kernel" and the file of syslog, or start systemd-journald; where it is meant, set '
        "journal_kernel = false in [sources] and name none"
    )
    by_nvml = any(each.name == "nvml" and each.on for each in sources)
    missed = "no Xid is seen but those that NVML tells" if by_nvml else "no Xid is seen"
    return [Problem(what=f"the kernel's log is not read, so {missed}", do=do)]


def _to_read(each: ReadSource, reason: str, remedy: str) -> str:
    switch = f"set {each.name} = false in [sources]" if each.built_in else "take it out of the settings"
    if remedy:
        return f"{remedy}; or {switch}"
    if "ermission" in reason or "not permitted" in reason:
        user = _user()
        return f"give {user} the right to read it (or run the agent as root), or {switch}"
    return f"put it right, or {switch}; the agent tries again by itself"


def _user() -> str:
    """Who runs this, for a sentence."""
    return "root" if os.geteuid() == 0 else f"the user of the agent (uid {os.geteuid()})"


def marker_problems(config: Config, kmsg: Path) -> list[Problem]:
    """Marks that are asked for and cannot be written."""
    if not config.clock.kmsg_marker or os.access(kmsg, os.W_OK):
        return []
    what = f"[clock] kmsg_marker is set and {kmsg} cannot be written"
    return [Problem(what=what, do="run the agent as root, or set kmsg_marker = false")]


def width_problems(width_ns: int) -> list[Problem]:
    """Clocks that take long to read."""
    if width_ns <= _WIDE_NS:
        return []
    return [
        Problem(
            what=f"reading the clocks takes {width_ns / 1e6:.1f} ms",
            do="take load off the machine, or look at its clock source "
            "(/sys/devices/system/clocksource/clocksource0/current_clocksource; tsc is fast)",
        )
    ]
