"""When a request for a capture counts. It is signed as every signed record (`schemas.signing`)."""

from typing import Final

from schemas.records import CaptureRequest

# A request that claims to be good for longer is none: who gets hold of an old one cannot use it.
LONGEST_NS: Final = 600 * 10**9
_AHEAD_NS: Final = 60 * 10**9  # how far the clocks of signer and node may be apart


def counts_at(request: CaptureRequest, now_ns: int) -> bool:
    """Whether it may be followed now, by the wall clock of the node (ns)."""
    lasts_ns = request.expires_unix_nano - request.created_unix_nano
    return 0 < lasts_ns <= LONGEST_NS and request.created_unix_nano - _AHEAD_NS <= now_ns < request.expires_unix_nano
