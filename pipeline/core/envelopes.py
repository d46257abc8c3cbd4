"""Text that another program put into a JSON object or into logfmt pairs, and what these say of it."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from pipeline.core.prefix_fields import note_stamp
from pipeline.core.stamps import Stamp, of_number, stamp_of
from schemas.matching import JsonKeys, load_prefixes, prefix_named

Fields = dict[str, Any]

# Times as numbers keep all their digits.
_JSON: Final = msgspec.json.Decoder(float_hook=Decimal)
MAX_PAIRS: Final = 64
# The text of such a line stands for itself: what is left of it is not worth keeping.
_LOGFMT_STARTS: Final = ("level=", "lvl=", "msg=", "time=", "ts=", "t=", "caller=", "logger=", "severity=", "source=")
_LOGFMT_ENDS: Final = frozenset(("level", "lvl", "severity", "time", "ts", "t", "msg", "message"))
# Digits behind the letter of an escape by number.
_NUMBERS: Final = {"x": 2, "u": 4}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def looks_enveloped(text: str) -> bool:
    """Whether a text may be an object or pairs; what it is hangs on more than its shape."""
    return text.startswith(("{", *_LOGFMT_STARTS))


def opened(text: str, fields: Fields) -> tuple[str, str] | None:
    """The text inside and the name of the envelope; notes what the envelope says. None where it is none."""
    if text.startswith("{"):
        record = decoded(text)
        body = None if record is None else _object(record, fields)
        return None if body is None else (body, "json")
    if text.startswith(_LOGFMT_STARTS) and "msg=" in text:
        body = _logfmt(text, fields)
        return None if body is None else (body, "pairs")
    return None


def decoded(text: str) -> dict[str, Any] | None:
    """A text as one JSON object."""
    try:
        record = _JSON.decode(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def at(record: Mapping[str, Any], path: str) -> object:
    """The value under a key, or under keys within keys where the path has dots."""
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    inner = record.get(head)
    return at(inner, rest) if dot and isinstance(inner, dict) else None


# --- objects ----------------------------------------------------------------------------------------------------------


def _object(record: Mapping[str, Any], fields: Fields) -> str | None:
    keys = load_prefixes().json
    body = _event(record) if at(record, "involvedObject") or at(record, "regarding") else None
    if body is None:
        body = next((text for key in keys.text if (text := _text_of(at(record, key))) is not None), None)
    if body is None:
        return None
    _note(record, keys, fields)
    raised = next((text for key in keys.exception if (text := _text_of(at(record, key)))), None)
    if raised is None:
        return body.rstrip("\r\n")
    # torchrun's error file says the exception twice: by itself, and below its traceback.
    return raised.rstrip() if body.strip() in raised else f"{body.rstrip()}\n{raised.rstrip()}"


def _note(record: Mapping[str, Any], keys: JsonKeys, fields: Fields) -> None:
    for name in ("node", "process", "pod"):
        said = next((x for key in getattr(keys, name) if isinstance(x := at(record, key), str) and x), None)
        if said is not None:
            fields[name] = said
    for name in ("pid", "rank", "local_rank"):
        number = next((n for key in getattr(keys, name) if (n := number_of(at(record, key))) is not None), None)
        if number is not None:
            fields[name] = number
    boot_us = next((n for key in keys.boot_us if (n := number_of(record.get(key))) is not None), None)
    if boot_us is not None:
        fields["boot_ns"] = boot_us * 1000
    stamp = _stamp(record, keys)
    if stamp is not None:
        note_stamp(stamp, fields)


def _stamp(record: Mapping[str, Any], keys: JsonKeys) -> Stamp | None:
    for key in keys.realtime_us:
        realtime_us = number_of(record.get(key))
        if realtime_us is not None:
            return Stamp(ns=realtime_us * 1000, resolution_ns=1000, has_year=True, has_zone=True, kind="json")
    return first_stamp(at(record, key) for key in keys.time)


def first_stamp(values: Iterable[object]) -> Stamp | None:
    """The first of these values that is a time: in ISO form, or a number of seconds (ms, us, ns) since 1970."""
    for value in values:
        # `2026-08-10 …` and `2026-08-10T…`, but no number.
        iso = prefix_named("iso").match(f"{value[:64]} ", 0) if isinstance(value, str) else None
        stamp = of_number(value) if iso is None else stamp_of(iso.groupdict(), "json")
        if stamp is not None:
            return stamp
    return None


def _event(record: Mapping[str, Any]) -> str | None:
    """An event of Kubernetes, in the form that its table has (`schemas/signals/documents.toml`)."""
    subject = at(record, "involvedObject") or at(record, "regarding")
    message = _text_of(at(record, "message")) or _text_of(at(record, "note"))
    reason = at(record, "reason")
    if not isinstance(subject, dict) or message is None or not isinstance(reason, str):
        return None
    kind, name = str(subject.get("kind", "")).lower(), subject.get("name", "")
    seen = next((x for key in ("lastTimestamp", "eventTime", "firstTimestamp") if (x := at(record, key))), "")
    said = {
        "LASTSEEN": seen, "TYPE": at(record, "type") or "Normal", "REASON": reason, "OBJECT": f"{kind}/{name}",
        "MESSAGE": message,
    }  # fmt: skip
    return "kubectl events: " + ", ".join(f"{key}={value}" for key, value in said.items())


def _text_of(value: object) -> str | None:
    if isinstance(value, list) and value:
        # The journal writes bytes that are not UTF-8 as an array of numbers, and a field of several values as texts.
        if all(isinstance(byte, int) and 0 <= byte <= 255 for byte in value):
            return bytes(value).decode("utf-8", "replace")
        return "\n".join(value) if all(isinstance(text, str) for text in value) else None
    return value if isinstance(value, str) else None


def number_of(value: object) -> int | None:
    """A value as a whole number that is not negative."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


# --- logfmt -----------------------------------------------------------------------------------------------------------


def _logfmt(text: str, fields: Fields) -> str | None:
    """The message of `level=error msg="…" key=value`, with the pairs that say more behind it."""
    pairs = _pairs(text)
    record = dict(pairs)
    message = record.get("msg") or record.get("message")
    if message is None or not record.keys() & (_LOGFMT_ENDS - {"msg", "message"} | {"caller"}):
        return None
    keys = load_prefixes().json
    _note(record, keys, fields)
    used = {*_LOGFMT_ENDS, *keys.node, *keys.pod, *keys.pid, *keys.rank, *keys.local_rank, *keys.time}
    more = [f"{key}={_quoted(value)}" for key, value in pairs if key not in used]
    return " ".join([message.rstrip("\r\n"), *more])


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    start = 0
    while start < len(text) and len(pairs) < MAX_PAIRS:
        equals = text.find("=", start)
        key = text[start:equals] if equals >= 0 else ""
        if not key or len(key) > 80 or not key.replace(".", "_").replace("-", "_").isidentifier():
            break
        if text[equals + 1 : equals + 2] == '"':
            value, end = _unquoted(text, equals + 2)
        else:
            end = text.find(" ", equals)
            end = len(text) if end < 0 else end
            value = text[equals + 1 : end]
        pairs.append((key, value))
        start = end
        while text[start : start + 1] == " ":
            start += 1
    return pairs


def _unquoted(text: str, start: int) -> tuple[str, int]:
    """A quoted text and where it ends, without its escapes."""
    pieces, at_, end = list[str](), start, len(text)
    quote = text.find('"', at_)
    while at_ < end:
        # It is looked for once, not behind each of many escapes before it.
        quote = text.find('"', at_) if 0 <= quote < at_ else quote
        escape = text.find("\\", at_)
        if quote < 0:
            pieces.append(text[at_:])
            return "".join(pieces), end
        if escape < 0 or quote < escape:
            pieces.append(text[at_:quote])
            return "".join(pieces), quote + 1
        letter = text[escape + 1 : escape + 2]
        size = _NUMBERS.get(letter, 0)
        number = text[escape + 2 : escape + 2 + size]
        if size and number.isalnum() and number.isascii() and not number.strip("0123456789abcdefABCDEF"):
            pieces += [text[at_:escape], chr(int(number, 16))]
        else:
            size = 0
            pieces += [text[at_:escape], _ESCAPES.get(letter, f"\\{letter}")]
        at_ = escape + 2 + size
    return "".join(pieces), end


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value or not value else value
