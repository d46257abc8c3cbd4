"""The one codec: orjson on the wire, msgspec for the shape. The version travels beside the record's tag."""

import binascii
from typing import Any, Final

import msgspec
import msgspec.inspect
import orjson

from schemas.topics import BY_NAME, TOPICS

VERSION: Final = 1
SHOWN_CHARACTERS: Final = 200


def tag_of(record: type) -> str:
    """The name of a record type on the wire, its field `record`."""
    info = msgspec.inspect.type_info(record)
    assert isinstance(info, msgspec.inspect.StructType), f"{record} is no record"
    return str(info.tag)


_TYPES: Final[dict[str, dict[str, type]]] = {
    topic.name: {tag_of(record): record for record in topic.records} for topic in TOPICS
}


class UnreadableRecordError(ValueError):
    """A message that is not a record of its topic. The text says why, in words for a dead letter."""


def encode(record: msgspec.Struct) -> bytes:
    """Bytes for the wire (UTF-8 JSON with `record` and `v`)."""
    shape: dict[str, Any] = msgspec.to_builtins(record)
    shape["v"] = VERSION
    return orjson.dumps(shape)


def decode(topic: str, data: bytes | None) -> Any:
    """The record in a message of `topic`. Raises UnreadableRecordError, never anything else."""
    if data is None:
        raise UnreadableRecordError("empty message")
    types = _TYPES[BY_NAME[topic].name]
    try:
        shape = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableRecordError(f"not JSON: {error}") from None
    if not isinstance(shape, dict):
        raise UnreadableRecordError(f"not a JSON object but {type(shape).__name__}")
    tag, version = shape.get("record"), shape.get("v")
    wanted = types.get(tag) if isinstance(tag, str) else None
    if wanted is None:
        raise UnreadableRecordError(f"record {_short(repr(tag))} does not belong to topic {topic}")
    if type(version) is not int or version != VERSION:
        raise UnreadableRecordError(f"unknown version {_short(repr(version))} of {tag}; this reads {VERSION}")
    try:
        return msgspec.convert(shape, wanted)
    except msgspec.ValidationError as error:
        raise UnreadableRecordError(f"{tag}: {_short(str(error))}") from None


def _short(text: str) -> str:
    """Text of a bounded length: what a message holds goes into a reason that people read."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def encode_bytes(data: bytes) -> str:
    """Base64 text of bytes that may be anything (dead letters)."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_bytes(text: str) -> bytes:
    """The bytes behind `encode_bytes`."""
    return binascii.a2b_base64(text)
