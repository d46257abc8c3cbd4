"""The one codec: orjson on the wire, msgspec for the shape. The version travels beside the record's tag."""

import binascii
from typing import Any, Final

import msgspec
import orjson

from schemas.topics import BY_NAME, TOPICS

VERSION: Final = 1
_TYPES: Final[dict[str, dict[str, type]]] = {
    topic.name: {t.__struct_config__.tag: t for t in topic.records} for topic in TOPICS
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
    wanted = types.get(shape.get("record", ""))
    if wanted is None:
        raise UnreadableRecordError(f"record {shape.get('record')!r} does not belong to topic {topic}")
    if shape.get("v") != VERSION:
        raise UnreadableRecordError(f"unknown version {shape.get('v')!r} of {shape['record']}; this reads {VERSION}")
    try:
        return msgspec.convert(shape, wanted)
    except msgspec.ValidationError as error:
        raise UnreadableRecordError(f"{shape['record']}: {error}") from None


def encode_bytes(data: bytes) -> str:
    """Base64 text of bytes that may be anything (dead letters)."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_bytes(text: str) -> bytes:
    """The bytes behind `encode_bytes`."""
    return binascii.a2b_base64(text)
