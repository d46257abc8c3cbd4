"""Signs capture requests on their way out of join. Needs the extra `signing`."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from schemas.codec import encode
from schemas.private_key import PrivateKeyError, read_private_key
from schemas.records import CaptureRequest
from schemas.signing import attach, to_sign


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
            return cls(read_private_key(path).sign)
        except PrivateKeyError as error:
            raise NoKeyError(f"{error}; make one with `openssl genpkey -algorithm ed25519 -out {path}`") from None

    def encode(self, record: msgspec.Struct) -> bytes:
        """Bytes for the wire."""
        data = encode(record)
        return attach(data, self._sign(to_sign(data))) if isinstance(record, CaptureRequest) else data
