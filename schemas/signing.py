"""Where the signature stands in a signed record, and which bytes it covers. No cryptography here.

The signature is the last member of the JSON object and covers the object without it, byte for byte.
"""

import base64
import binascii
import hashlib
from typing import Final

SIGNATURE_BYTES: Final = 64
_FINGERPRINT: Final = 16
_DOMAIN: Final = b"rootrank signed record 1\n"
_BEFORE: Final = b',"signature":"'
_AFTER: Final = b'"}'
_TEXT_BYTES: Final = 88
_TAIL_BYTES: Final = len(_BEFORE) + _TEXT_BYTES + len(_AFTER)


def to_sign(data: bytes) -> bytes:
    """What is signed for a record: its bytes without a signature, behind what they are signed as."""
    return _DOMAIN + data


def attach(data: bytes, signature: bytes) -> bytes:
    """The record with its signature as the last member."""
    return data[:-1] + _BEFORE + base64.b64encode(signature) + _AFTER


def detach(data: bytes) -> tuple[bytes, bytes] | None:
    """The record's bytes without the signature, and the signature; None where it has none at its end."""
    tail = data[-_TAIL_BYTES:]
    if len(data) <= _TAIL_BYTES or not (tail.startswith(_BEFORE) and tail.endswith(_AFTER)):
        return None
    try:
        signature = base64.b64decode(tail[len(_BEFORE) : -len(_AFTER)], validate=True)
    except binascii.Error:
        return None
    return (data[:-_TAIL_BYTES] + b"}", signature) if len(signature) == SIGNATURE_BYTES else None


def fingerprint(public: bytes) -> str:
    """The id of a key that was given none."""
    return f"ed25519-{hashlib.sha256(public).hexdigest()[:_FINGERPRINT]}"
