"""One entry of the journal as a line: as syslog would have written it, or as the kernel's ring would have given it."""

import time
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

import msgspec

from schemas.lines import body_of
from schemas.records import RawLine

# What journalctl is asked for beside what it always gives.
FIELDS: Final = (
    "CONTAINER_NAME", "MESSAGE", "MESSAGE_ID", "N_DROPPED", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER",
    "SYSLOG_PID", "_COMM", "_HOSTNAME", "_MACHINE_ID", "_PID", "_SOURCE_MONOTONIC_TIMESTAMP",
    "_SOURCE_REALTIME_TIMESTAMP", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "_TRANSPORT",
)  # fmt: skip
KERNEL: Final = "kernel"
# journald dropped messages of a unit that wrote too many, or could not take what the kernel wrote.
_DROPPED: Final = frozenset(("a596d6fe7bfa4994828e72309e95d61e", "e9bf28e6e834481bb6f48f548ad13606"))
_INT64_MAX: Final = 2**63 - 1
_WHO: Final = (
    "_HOSTNAME", "SYSLOG_IDENTIFIER", "_COMM", "SYSLOG_PID", "_PID", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT",
    "_TRANSPORT", "PRIORITY", "SYSLOG_FACILITY", "_BOOT_ID", "_MACHINE_ID", "CONTAINER_NAME",
)  # fmt: skip
_SMALL_BYTES: Final = 4096
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry. `realtime_us` is when journald took it, `sent_us` when it was sent, as far as that is known."""

    cursor: str
    sequence: int
    generation: str
    realtime_us: int
    sent_us: int
    kernel_us: int | None
    host: str
    identifier: str
    pid: str
    unit: str
    transport: str
    priority: str
    facility: str
    message: bytes
    boot_id: str
    machine_id: str
    container: str
    dropped: int | None = None
    mono_us: str = ""


class _Sender(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What many entries have in common."""

    host: str
    identifier: str
    pid: str
    unit: str
    transport: str
    priority: str
    facility: str
    boot_id: str
    machine_id: str
    container: str


def parse(data: bytes) -> Entry | None:
    """An entry as journalctl writes it (`-o json`); None where it is none."""
    try:
        said = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    cursor, realtime_us = _text(said.get("__CURSOR")), _number(said.get("__REALTIME_TIMESTAMP"))
    if not cursor or realtime_us is None:
        return None
    who = tuple(map(said.get, _WHO))
    try:
        # Many entries have the same sender. What a sender made long is not kept.
        sender = (_sender if len(data) <= _SMALL_BYTES else _sender.__wrapped__)(who)
    except TypeError:  # a field that came several times
        sender = _sender.__wrapped__(who)
    sequence, number = place_of(cursor)
    message_id = said.get("MESSAGE_ID")
    return Entry(
        cursor=cursor, sequence=number, generation=f"{sequence[:12]}.{sender.boot_id[:8]}",
        realtime_us=realtime_us, sent_us=_sent_us(said, realtime_us),
        kernel_us=_number(said.get("_SOURCE_MONOTONIC_TIMESTAMP")) if sender.transport == KERNEL else None,
        message=_bytes(said.get("MESSAGE")), mono_us=_digits(said.get("__MONOTONIC_TIMESTAMP"), 19),
        dropped=_number(said.get("N_DROPPED")) if message_id and _text(message_id) in _DROPPED else None,
        host=sender.host, identifier=sender.identifier, pid=sender.pid, unit=sender.unit, transport=sender.transport,
        priority=sender.priority, facility=sender.facility, boot_id=sender.boot_id, machine_id=sender.machine_id,
        container=sender.container,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _sender(who: tuple[Any, ...]) -> _Sender:
    """What the fields of `_WHO` say."""
    host, identifier, command, syslog_pid, pid, unit, user_unit, transport, priority, facility, *rest = who
    boot_id, machine_id, container = rest
    return _Sender(
        host=_word(host), identifier=_word(identifier) or _word(command), pid=_digits(syslog_pid) or _digits(pid),
        unit=_text(unit) or _text(user_unit), transport=_text(transport), priority=_digits(priority),
        facility=_digits(facility), boot_id=_text(boot_id), machine_id=_text(machine_id), container=_text(container),
    )  # fmt: skip


def place_of(cursor: str) -> tuple[str, int]:
    """The name of a sequence of numbers, and the number in it: the first two parts of what journald writes."""
    first, _, rest = cursor.partition(";i=")
    if first[:2] == "s=" and ";" not in first and rest:
        return first[2:], _number(rest.partition(";")[0], 16) or 0
    parts = parts_of(cursor)
    return parts.get("s", ""), _number(parts.get("i"), 16) or 0


def parts_of(cursor: str) -> dict[str, str]:
    """The parts of a cursor: `s` names a sequence of numbers, `i` is the number in it (hex), `b` the boot."""
    return {key: value for part in cursor.split(";") for key, _, value in [part.partition("=")]}


def is_same(cursor: str, other: str) -> bool:
    """Whether two cursors are of one entry; an entry may stand in several files, under other numbers."""
    mine, theirs = parts_of(cursor), parts_of(other)
    return all(mine.get(key) == theirs.get(key) for key in "bmtx")


def between(cursor: str, other: str) -> int | None:
    """How many entries of all kinds were written between two; None where they are not of one sequence."""
    mine, theirs = parts_of(cursor), parts_of(other)
    first, second = _number(mine.get("i"), 16), _number(theirs.get("i"), 16)
    if mine.get("s") != theirs.get("s") or first is None or second is None:
        return None
    return max(0, second - first - 1)


@lru_cache(maxsize=4096)
def is_named(unit: str, names: tuple[str, ...]) -> bool:
    """Whether a unit is one of these; names may have `*` and `?`, and leave `.service` out."""
    bare = unit.removesuffix(".service")
    return any(fnmatchcase(unit, name) or fnmatchcase(bare, name) for name in names)


def line_of(entry: Entry, source: str, observed_ns: int, max_bytes: int, boot_id: str) -> RawLine:
    """The entry as a line without a number. `boot_id` is that of now."""
    message, is_cut = entry.message, len(entry.message) > max_bytes
    text = body_of(message[:max_bytes])[0]
    attributes = {"journal.unit": entry.unit, "journal.mono_us": entry.mono_us}
    if entry.boot_id != boot_id.replace("-", ""):
        attributes["journal.boot_id"] = entry.boot_id
    is_kernel = entry.transport == KERNEL
    if is_kernel:
        attributes |= {"kmsg.priority": entry.priority, "kmsg.facility": entry.facility}
    else:
        attributes |= {
            "journal.priority": entry.priority, "journal.identifier": entry.identifier, "journal.pid": entry.pid,
            "journal.container": entry.container,
        }  # fmt: skip
        text = f"{_stamp(entry.sent_us)} {entry.host or 'localhost'} {_tag(entry)}: {text}"
    is_of_now = "journal.boot_id" not in attributes
    return RawLine(
        seq=0, source=source, generation=entry.generation, offset=entry.sequence, body=text,
        time_unix_nano=entry.sent_us * 1000, truncated=is_cut,
        # The kernel's clock began anew with each boot: of an earlier one only the wall time says when.
        kernel_time_ns=entry.kernel_us * 1000 if entry.kernel_us is not None and is_of_now else None,
        observed_time_unix_nano=observed_ns, attributes={key: value for key, value in attributes.items() if value},
    )  # fmt: skip


def _tag(entry: Entry) -> str:
    name = entry.identifier or "unknown"
    return f"{name}[{entry.pid}]" if entry.pid and name != KERNEL else name


def _stamp(at_us: int) -> str:
    seconds, micros = divmod(at_us, 1_000_000)
    return f"{_second(seconds)}.{micros:06}+00:00"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _sent_us(said: dict[str, Any], realtime_us: int) -> int:
    """When it was sent. That is before it was taken, and not long: a sender with a clock of its own is not believed."""
    sent_us = _number(said.get("_SOURCE_REALTIME_TIMESTAMP"))
    return sent_us if sent_us is not None and 0 <= realtime_us - sent_us < 60_000_000 else realtime_us


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, list):
        if all(isinstance(byte, int) and 0 <= byte <= 255 for byte in value):
            return bytes(value)
        return b"\n".join(_bytes(each) for each in value)  # a field that came several times
    return b""


def _text(value: object) -> str:
    if isinstance(value, list):
        value = value[0] if value and isinstance(value[0], str) else ""
    return value if isinstance(value, str) else ""


def _word(value: object) -> str:
    """A name without blanks and brackets: it stands in front of a colon."""
    return "_".join(_bytes(value).decode("utf-8", "replace").split())[:128]


def _digits(value: object, most: int = 10) -> str:
    text = _text(value)
    return text if text.isascii() and text.isdecimal() and len(text) <= most else ""


def _number(value: object, base: int = 10) -> int | None:
    if not isinstance(value, str) or len(value) > 19:
        return None
    try:
        number = int(value, base)
    except ValueError:
        return None
    return number if 0 <= number <= _INT64_MAX else None
