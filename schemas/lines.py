"""How bytes of a log become line bodies: one rule for the shipper, replay and post-mortem, so that ids agree."""

from typing import Final

MAX_LINE_BYTES: Final = 1024 * 1024


def body_of(data: bytes, max_bytes: int = MAX_LINE_BYTES) -> tuple[str, bool]:
    """Text of one line (without its newline) and whether it had to be cut. Invalid UTF-8 becomes U+FFFD."""
    cut = len(data) > max_bytes
    return data[:max_bytes].decode("utf-8", "replace").removesuffix("\n").removesuffix("\r"), cut
