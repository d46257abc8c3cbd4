"""Takes the prefixes off a line: what is left is the body that signals match; what the prefixes said is context."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.prefix_fields import all_takers, take
from pipeline.core.stamps import Stamp, stamp_of
from schemas.matching import JsonKeys, Prefix, load_prefixes

MAX_PREFIXES: Final = 12


class ParsedLine(Struct, frozen=True, kw_only=True):
    """A line without its prefixes. Fields are None where no prefix said so; nothing is guessed.

    `boot_ns` counts from the boot of the node (kernel stamps). `pid` is in the pid space of whoever printed it.
    `task` is the label of srun: a rank where one task is one rank, else the number of a node. `rank` is global;
    `pg_rank` is the rank inside the process group `pg`. `wrappers` names what was taken off, outermost first.
    """

    body: str
    stamp: Stamp | None = None
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
    text = _plain(text, wrappers)
    if text.startswith("{"):
        text = _unwrap_json(text, fields, wrappers)
    end, by_shape = _strip(text, fields, wrappers)
    return ParsedLine(body=text[end:] if end else text, wrappers=tuple(wrappers), **fields), by_shape


def is_kmsg(text: str) -> KmsgRecord | None:
    """The header of a /dev/kmsg record such as `6,1234,56701234567,-;text`, or None for any other line."""
    prefix = _by_name("kmsg")
    found = prefix.match(text, 0)
    if found is None:
        return None
    return KmsgRecord(priority=int(found["priority"]), sequence=int(found["sequence"]), boot_us=int(found["boot_us"]))


def is_kmsg_continuation(text: str) -> bool:
    """Whether a line of a /dev/kmsg record is one of its ` KEY=value` lines."""
    key, equals, _ = text[1:128].partition("=")
    return text.startswith(" ") and bool(equals) and key.isidentifier() and key.isupper()


def _plain(text: str, wrappers: list[str]) -> str:
    if "\x1b" in text:
        text = load_prefixes().ansi.sub("", text)
        wrappers.append("ansi")
    if "\r" in text:
        segments = [part for part in text.split("\r") if part.strip()]
        text = segments[-1] if segments else ""
        if len(segments) > 1:
            wrappers.append("progress_bar")
    return text


def _strip(text: str, fields: dict[str, Any], wrappers: list[str]) -> tuple[int, bool]:
    at, after_stamp, by_shape = 0, False, True
    for _ in range(MAX_PREFIXES):
        start = at
        # An indent belongs to the body, unless a prefix stands behind it.
        if text[start : start + 1] == " " and text[start + 1 : start + 2] == "[":
            start += 1
        for prefix in _possible(text[start : start + 2]):
            entry = prefix.entry
            if (entry.first and wrappers and wrappers != ["ansi"]) or (entry.after == "stamp" and not after_stamp):
                continue
            found = prefix.match(text, start)
            if found is None:
                continue
            if not take(all_takers()[entry.name], found.groups(), fields):
                by_shape = False
                continue
            wrappers.append(entry.name)
            at, after_stamp = found.end(), after_stamp or entry.stamp
            if entry.last:
                return at, by_shape
            break
        else:
            return at, by_shape
    return at, by_shape


@lru_cache(maxsize=4096)
def _possible(two: str) -> tuple[Prefix, ...]:
    if not two:
        return ()
    return tuple(prefix for prefix in load_prefixes().prefixes if prefix.starts(two))


@lru_cache(maxsize=16)
def _by_name(name: str) -> Prefix:
    return next(prefix for prefix in load_prefixes().prefixes if prefix.entry.name == name)


def _unwrap_json(text: str, fields: dict[str, Any], wrappers: list[str]) -> str:
    try:
        record = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    keys = load_prefixes().json
    body = _text_of(_first(record, keys.text)) if isinstance(record, dict) else None
    if body is None:
        return text
    wrappers.append("json")
    _note_json(record, keys, fields)
    return _plain(body.rstrip("\n"), wrappers)


def _note_json(record: Mapping[str, Any], keys: JsonKeys, fields: dict[str, Any]) -> None:
    node, process, pid = (_first(record, names) for names in (keys.node, keys.process, keys.pid))
    if isinstance(node, str) and node:
        fields["node"] = node
    if isinstance(process, str) and process:
        fields["process"] = process
    if (pid_number := _number(pid)) is not None:
        fields["pid"] = pid_number
    if (boot_us := _number(_first(record, keys.boot_us))) is not None:
        fields["boot_ns"] = boot_us * 1000
    stamp = _json_stamp(record, keys)
    if stamp is not None:
        fields["stamp"] = stamp


def _json_stamp(record: Mapping[str, Any], keys: JsonKeys) -> Stamp | None:
    realtime_us = _number(_first(record, keys.realtime_us))
    if realtime_us is not None:
        return Stamp(ns=realtime_us * 1000, resolution_ns=1000, has_year=True, has_zone=True, kind="json")
    printed = _first(record, keys.time)
    if not isinstance(printed, str):
        return None
    iso = _by_name("iso").match(f"{printed[:64]} ", 0)
    return None if iso is None else stamp_of(iso.groupdict(), "json")


def _first(record: Mapping[str, Any], keys: list[str]) -> object:
    return next((record[key] for key in keys if key in record), None)


def _text_of(value: object) -> str | None:
    # The journal writes bytes that are not UTF-8 as an array of numbers.
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
