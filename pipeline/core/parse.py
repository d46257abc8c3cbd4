"""Takes the prefixes off a line: what is left is the body that signals match; what the prefixes said is context."""

import re
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from pipeline.core.envelopes import looks_enveloped, opened
from pipeline.core.prefix_fields import all_takers
from pipeline.core.stamps import Stamp
from schemas.matching import Prefix, load_prefixes, prefix_named

MAX_PREFIXES: Final = 12
# An object in an object, each with its prefixes and colours.
MAX_LAYERS: Final = 6
MAX_PARTS: Final = 8
# What may stand between two prefixes, or before the first one.
INDENT: Final = r" {1,4}(?=\[)"
_INDENT: Final = re.compile(INDENT)
# What says which process wrote a line: prefixes that machines put in front do not stand behind it.
_OF_A_PROCESS: Final = frozenset(("rank", "local_rank", "pid", "process", "boot_ns", "cuda_dev", "pg_rank"))
# Behind `host kernel: ` stands the kernel's text, which may begin with a task: `sshd[77]: `, `node exporter[77]: `.
_OF_A_DAEMON: Final = frozenset(("syslog_host", "host_rank", "tag"))
# rsyslog writes control characters as their octal numbers.
_SYSLOG: Final = frozenset(("syslog", "syslog_host", "syslog_5424", "syslog_priority", "tag", "slurmstepd"))
_OCTAL: Final = (("#012", "\n"), ("#011", "\t"), ("#033", "\x1b"), ("#015", "\r"), ("#000", ""))


class ParsedLine(Struct, frozen=True, kw_only=True, gc=False):
    """A line without its prefixes. Fields are None where no prefix said so; nothing is guessed.

    `other` is the stamp that says less, of two. `boot_ns` counts from the boot of the node (kernel stamps). `pid` is in
    the pid space of whoever printed it. `task` is the label of srun: a rank where one task is one rank, else the number
    of a node. `rank` is global; `pg_rank` is the rank inside the process group `pg`. `count`: how many lines this one
    stands for. `wrappers` names what was taken off, outermost first. A text inside an object may have several lines.
    """

    body: str
    stamp: Stamp | None = None
    other: Stamp | None = None
    boot_ns: int | None = None
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    pid: int | None = None
    cuda_dev: int | None = None
    pg_rank: int | None = None
    pg: str | None = None
    process: str | None = None
    pod: str | None = None
    count: int | None = None
    wrappers: tuple[str, ...] = ()


class KmsgRecord(Struct, frozen=True, kw_only=True):
    """The header of a /dev/kmsg record."""

    priority: int
    sequence: int
    boot_us: int


def parse_line(text: str) -> ParsedLine:
    """Strip wrappers and stamps in any nesting. Takes any string, never raises, and takes time linear in its length."""
    return take_apart(text)[0]


def take_apart(text: str) -> tuple[ParsedLine, bool]:
    """`parse_line`, and whether the prefixes follow from the shape of the line: no stamp was an impossible time."""
    fields: dict[str, Any] = {}
    wrappers: list[str] = []
    text = _plain(text, fields, wrappers)
    by_shape = True
    for _ in range(MAX_LAYERS):
        end, is_same, is_last = _strip(text, fields, wrappers)
        by_shape = by_shape and is_same
        text = text[end:] if end else text
        if is_last:
            break
        if "#0" in text and not _SYSLOG.isdisjoint(wrappers) and (plain := _unescaped(text)) != text:
            wrappers.append("escapes")
            text = _plain(plain, fields, wrappers)
        elif looks_enveloped(text):
            by_shape = False
            inner = opened(text, fields)
            if inner is None:
                break
            wrappers.append(inner[1])
            text = _plain(inner[0], fields, wrappers)
        else:
            break
    if "[repeated " in text:
        text = _without_count(text, fields, wrappers)
    return ParsedLine(body=text, wrappers=tuple(wrappers), **fields), by_shape


def kmsg_header(text: str) -> KmsgRecord | None:
    """The header of a /dev/kmsg record such as `6,1234,56701234567,-;text`, or None for any other line."""
    found = prefix_named("kmsg").match(text, 0)
    if found is None:
        return None
    return KmsgRecord(priority=int(found["priority"]), sequence=int(found["sequence"]), boot_us=int(found["boot_us"]))


def is_kmsg_continuation(text: str) -> bool:
    """Whether a line of a /dev/kmsg record is one of its ` KEY=value` lines."""
    key, equals, _ = text[1:128].partition("=")
    return text.startswith(" ") and bool(equals) and key.isidentifier() and key.isupper()


def _plain(text: str, fields: dict[str, Any], wrappers: list[str]) -> str:
    """A text without colours, progress bars and what else is not meant to be read."""
    if "\x1b" in text:
        text = load_prefixes().ansi.sub("", text)
        wrappers.append("ansi")
    if "\x00" in text or text.startswith("\ufeff"):
        text = text.replace("\x00", "").removeprefix("\ufeff")
        wrappers.append("escapes")
    if "\r" in text:
        parts = text.split("\r", MAX_PARTS)
        text = "\n".join(_last_part(line) for line in text.replace("\r\n", "\n").split("\n"))
        if parts[0].strip() and not text.startswith(parts[0]):
            wrappers.append("progress_bar")
            # The prefixes of the line stand before its first part.
            for part in parts[:-1]:
                _strip(part, fields, wrappers)
    return text


def _last_part(line: str) -> str:
    """What a terminal would leave of a line that goes back to its start."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def _unescaped(text: str) -> str:
    for octal, character in _OCTAL:
        text = text.replace(octal, character)
    return text


def _without_count(text: str, fields: dict[str, Any], wrappers: list[str]) -> str:
    found = load_prefixes().repeated.search(text)
    if found is None:
        return text
    fields["count"] = int(found["count"])
    wrappers.append("repeated")
    return text[: found.start()].rstrip()


def _strip(text: str, fields: dict[str, Any], wrappers: list[str]) -> tuple[int, bool, bool]:
    """Where the prefixes end, whether that follows from the shape, and whether nothing behind them is looked at."""
    at, after_stamp, by_shape = 0, False, True
    for _ in range(MAX_PREFIXES):
        start = at
        is_kernel = fields.get("process") == "kernel" and not _SYSLOG.isdisjoint(wrappers)
        # An indent belongs to the body, unless a prefix stands behind it.
        if text[start : start + 1] == " ":
            indent = _INDENT.match(text, start)
            start = start if indent is None else indent.end()
        for prefix in _possible(text[start : start + 2]):
            entry = prefix.entry
            if (entry.first and not _OF_A_PROCESS.isdisjoint(fields)) or (entry.after == "stamp" and not after_stamp):
                continue
            if is_kernel and entry.name in _OF_A_DAEMON:
                continue
            found = prefix.match(text, start)
            if found is None:
                continue
            if not all_takers()[entry.name].take(found.groups(), fields):
                by_shape = False
                continue
            wrappers.append(entry.name)
            at, after_stamp = found.end(), after_stamp or entry.stamp
            if entry.last:
                return at, by_shape, True
            break
        else:
            return at, by_shape, False
    return at, by_shape, False


@lru_cache(maxsize=4096)
def _possible(two: str) -> tuple[Prefix, ...]:
    if not two:
        return ()
    return tuple(prefix for prefix in load_prefixes().prefixes if prefix.starts(two))
