"""The keys of reporters and operators: TOML files, read again when they change."""

import base64
import binascii
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

PUBLIC_BYTES: Final = 32
_SECOND_NS: Final = 10**9


class KeysError(ValueError):
    """Key files that cannot be used. The text names the file and what to do."""


class Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A public key: whose it is and when it counts, by the broker's time of a message. No `valid_until`: for ever.

    An operator's has neither cluster nor reporter.
    """

    key_id: str
    public: str
    cluster: str = ""
    reporter: str = ""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    revoked: bool = False

    @property
    def public_bytes(self) -> bytes:
        """The key itself."""
        return base64.b64decode(self.public, validate=True)

    def doubt(self, now_ns: int) -> str:
        """Why it does not count at this moment; empty where it does."""
        if self.revoked:
            return f"key {self.key_id} is revoked"
        if self.valid_from is not None and now_ns < _ns(self.valid_from):
            return f"key {self.key_id} counts only from {_text(self.valid_from)}"
        if self.valid_until is not None and now_ns >= _ns(self.valid_until):
            return f"key {self.key_id} has expired on {_text(self.valid_until)}"
        return ""


class KeyRing(Struct, frozen=True, kw_only=True):
    """All keys by id."""

    reporters: dict[str, list[Key]] = {}
    operators: dict[str, list[Key]] = {}


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    key: list[Key] = []
    operator: list[Key] = []


def files_of(path: Path) -> dict[Path, tuple[int, int]]:
    """The files behind a path, a file or a folder of *.toml, each with what changes when it does. Raises KeysError."""
    try:
        paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        return {each: ((status := each.stat()).st_mtime_ns, status.st_ino) for each in paths}
    except OSError as error:
        raise KeysError(
            f"{error.filename}: {error.strerror}; let this process read it, or correct --trust-keys"
        ) from None


def load_keys(path: Path) -> KeyRing:
    """Read all keys. Raises KeysError."""
    ring = KeyRing()
    for file in files_of(path):
        shape = _read(file)
        for key in shape.key:
            if not key.cluster or not key.reporter:
                raise KeysError(f"{file}: [[key]] {key.key_id} needs cluster and reporter")
            ring.reporters.setdefault(key.key_id, []).append(key)
        for key in shape.operator:
            ring.operators.setdefault(key.key_id, []).append(key)
    return ring


def _read(file: Path) -> _File:
    try:
        shape = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File)
        for key in _all(shape):
            if len(key.public_bytes) != PUBLIC_BYTES:
                raise KeysError(
                    f"{file}: public of {key.key_id} has not {PUBLIC_BYTES} bytes; copy what keygen printed"
                )
    except OSError as error:
        raise KeysError(f"{file}: {error.strerror}; let this process read it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise KeysError(f"{file}: {error}") from None
    except binascii.Error:
        raise KeysError(f"{file}: a public key is no base64; copy what `rootrank-shipper keygen` printed") from None
    return shape


def _all(shape: Any) -> Iterator[Key]:
    yield from shape.key
    yield from shape.operator


def _ns(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp()) * _SECOND_NS


def _text(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
