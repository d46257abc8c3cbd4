"""Signs capture requests on their way out of join. Needs the extra `signing`."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from schemas.capture_request import signed, to_sign
from schemas.codec import encode
from schemas.records import CaptureRequest


class NoKeyError(ValueError):
    """The key cannot be used. The text names the file, never what is in it."""


class RequestSigner:
    """The codec of join where nodes are asked: as the usual one, but that requests are signed."""

    def __init__(self, sign: Callable[[bytes], bytes]) -> None:
        self._sign = sign

    @classmethod
    def of_file(cls, path: Path) -> "RequestSigner":
        """With the private key in a PEM file. Raises NoKeyError."""
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise NoKeyError("signing needs the package cryptography: pip install 'rootrank[signing]'") from None
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise NoKeyError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise NoKeyError(f"{path} is no private Ed25519 key in PEM: openssl genpkey -algorithm ed25519 -out {path}")
        return cls(key.sign)

    def encode(self, record: msgspec.Struct) -> bytes:
        """Bytes for the wire."""
        if isinstance(record, CaptureRequest):
            record = signed(record, self._sign(to_sign(record)))
        return encode(record)
