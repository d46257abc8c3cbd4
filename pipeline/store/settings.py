"""Where ClickHouse is and as whom to speak to it. Needs no driver."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pipeline.store.errors import StoreSettingsError
from schemas.small_file import read_small

DEFAULT_DATABASE: Final = "rootrank"
DEFAULT_USER: Final = "default"
DEFAULT_URL: Final = f"http://127.0.0.1:8123/{DEFAULT_DATABASE}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """Where ClickHouse is and as whom to speak to it. `readonly` asks the engine to refuse every write."""

    host: str
    port: int
    secure: bool = False
    user: str = DEFAULT_USER
    password: str = field(default="", repr=False)
    database: str = DEFAULT_DATABASE
    readonly: bool = False
    timeout_s: int = 60

    @property
    def address(self) -> str:
        """The address without credentials, for messages."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}/{self.database}"


def settings_from_url(url: str, *, password_file: Path | None = None) -> StoreSettings:
    """Settings of `http[s]://user:password@host:port/database`. Raises StoreSettingsError.

    A password file wins over a password in the URL; its trailing line end is not part of the password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise StoreSettingsError(f"the ClickHouse address cannot be read: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise StoreSettingsError(
            "the ClickHouse address must look like http://user:password@host:8123/rootrank (HTTP interface)"
        )
    secure = parts.scheme == "https"
    password = unquote(parts.password or "")
    if password_file is not None:
        password = read_password(password_file)
    return StoreSettings(
        host=parts.hostname,
        port=port or (8443 if secure else 8123),
        secure=secure,
        user=unquote(parts.username or DEFAULT_USER),
        password=password,
        database=unquote(parts.path.strip("/")) or DEFAULT_DATABASE,
    )


def read_password(path: Path) -> str:
    """The password in a file, without its line end. Raises StoreSettingsError."""
    try:
        return read_small(path).decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreSettingsError(f"the ClickHouse password file cannot be read: {error}") from None


def as_reader(settings: StoreSettings, *, user: str | None = None, password: str = "") -> StoreSettings:
    """The same database, read only: as the reader user where there is one, else by the `readonly` setting."""
    if user:
        return replace(settings, user=user, password=password, readonly=False)
    return replace(settings, readonly=True)
