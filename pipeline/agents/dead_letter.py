"""A message that cannot be used becomes a record with an address."""

from pipeline.agents.fold import BadMessage, Output
from schemas.codec import encode_bytes
from schemas.records import DeadLetter
from schemas.topics import DEAD_LETTER

KEPT_BYTES = 1024 * 1024
KEPT_KEY_BYTES = 4096
KEPT_REASON_CHARACTERS = 2000


def dead_letter(bad: BadMessage) -> Output:
    """The dead letter of a message; it can always be sent. Bytes beyond 1 MiB are cut off, and the reason says so."""
    value = bad.value or b""
    reason = bad.reason[:KEPT_REASON_CHARACTERS].encode("utf-8", "backslashreplace").decode()
    if len(value) > KEPT_BYTES:
        reason = f"{reason} (first {KEPT_BYTES} of {len(value)} bytes kept)"
    record = DeadLetter(
        topic=bad.topic,
        partition=bad.partition,
        offset=bad.offset,
        reason=reason,
        data=encode_bytes(value[:KEPT_BYTES]),
        key=None if bad.key is None else bad.key[:KEPT_KEY_BYTES].decode("utf-8", "backslashreplace"),
        observed_time_unix_nano=bad.now_ns,
    )
    return Output(topic=DEAD_LETTER.name, key=f"{bad.topic}/{bad.partition}/{bad.offset}".encode(), record=record)
