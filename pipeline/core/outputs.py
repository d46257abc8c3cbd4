"""What a fold gives back."""

from msgspec import Struct


class Output(Struct, frozen=True, kw_only=True, gc=False):
    """A record to be sent to a topic under a key."""

    topic: str
    key: bytes
    record: Struct
