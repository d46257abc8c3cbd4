"""Private keys (Ed25519, PEM) as all that sign read them. Needs the extra `signing`."""

from pathlib import Path
from typing import TYPE_CHECKING

from schemas.small_file import read_small

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class PrivateKeyError(ValueError):
    """A key that cannot be used. The text names the file, never what is in it."""


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """The key in a file. Raises PrivateKeyError."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise PrivateKeyError("signing needs the package cryptography: pip install 'rootrank[signing]'") from None
    try:
        key = load_pem_private_key(read_small(path), None)
    except OSError as error:
        raise PrivateKeyError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise PrivateKeyError(f"{path} is no private Ed25519 key in PEM")
    return key
