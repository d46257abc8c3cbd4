"""Signs what the agent ships with a key of its own (Ed25519). Needs the extra `signing`."""

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.private_key import PrivateKeyError, read_private_key
from schemas.signing import attach, fingerprint, to_sign
from shippers.config import ConfigError, SigningSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Signer:
    """Signs records under one key id."""

    def __init__(self, key_id: str, sign: Callable[[bytes], bytes]) -> None:
        self.key_id = key_id
        self._sign = sign

    def signed(self, data: bytes) -> bytes:
        """The record with its signature. It must carry our `key_id`."""
        return attach(data, self._sign(to_sign(data)))


def load_signer(settings: SigningSettings) -> Signer | None:
    """The signer of the settings, None where they name no key. Raises ConfigError."""
    if not settings.key_file:
        return None
    return signer_of(Path(settings.key_file), settings.key_id)


def cannot_sign(settings: SigningSettings) -> list[str]:
    """Why an agent with these settings would not start, and behind a semicolon what to do."""
    try:
        load_signer(settings)
    except ConfigError as error:
        return [str(error)]
    except ModuleNotFoundError as error:
        return [f"[signing] needs the package {error.name}; install it with `pip install 'rootrank[shipper,signing]'`"]
    return []


def signer_of(path: Path, key_id: str = "") -> Signer:
    """A signer with the key in a file. Raises ConfigError, which never holds what is in the file."""
    try:
        key = read_private_key(path)
    except PrivateKeyError as error:
        raise ConfigError(
            f"[signing] key_file {error}; make one with `rootrank-shipper keygen` and let the agent's user read it"
        ) from None
    return Signer(key_id or fingerprint(_raw_public(key)), key.sign)


def make_key(folder: Path, key_id: str = "") -> tuple[Path, str, str]:
    """Write a new key into `folder`, for its owner only. Returns the file, the key's id and its public half (base64).

    Raises FileExistsError where there is one of this id.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    public = _raw_public(key)
    name = key_id or fingerprint(public)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.key"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path, name, base64.b64encode(public).decode()


def readable_by_all(settings: SigningSettings) -> list[str]:
    """A warning where every user of the machine can read the key."""
    path = settings.key_file
    try:
        is_open = bool(path) and bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return []
    return [f"[signing] key_file {path} can be read by every user of this machine; chmod 600 it"] if is_open else []


def _raw_public(key: "Ed25519PrivateKey") -> bytes:
    return key.public_key().public_bytes_raw()
