"""Which bytes the signature of a capture request covers, and when one counts. No cryptography here."""

import base64
import binascii
from typing import Final

import msgspec

from schemas.codec import encode
from schemas.records import CaptureRequest

# A request that claims to be good for longer is none: who gets hold of an old one cannot use it.
LONGEST_NS: Final = 600 * 10**9
_AHEAD_NS: Final = 60 * 10**9  # how far the clocks of signer and node may be apart
_DOMAIN: Final = b"rootrank capture request 1\n"


def to_sign(request: CaptureRequest) -> bytes:
    """What is signed: the record without its signature, behind what it is signed as."""
    return _DOMAIN + encode(msgspec.structs.replace(request, signature=""))


def signed(request: CaptureRequest, signature: bytes) -> CaptureRequest:
    """The request with its signature."""
    return msgspec.structs.replace(request, signature=base64.b64encode(signature).decode())


def signature_of(request: CaptureRequest) -> bytes:
    """Its signature; empty where it has none that can be one."""
    try:
        return base64.b64decode(request.signature, validate=True)
    except (binascii.Error, ValueError):
        return b""


def counts_at(request: CaptureRequest, now_ns: int) -> bool:
    """Whether it may be followed now, by the wall clock of the node (ns)."""
    lasts_ns = request.expires_unix_nano - request.created_unix_nano
    return 0 < lasts_ns <= LONGEST_NS and request.created_unix_nano - _AHEAD_NS <= now_ns < request.expires_unix_nano
