"""One question to ClickHouse over HTTP, with the standard library: the agent needs no driver for it."""

import http.client
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

import orjson
from msgspec import Struct

from schemas.small_file import read_small

_KINDS: Final[dict[str, type[http.client.HTTPConnection]]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}
_SAID_CHARACTERS: Final = 200


class ClickHouseError(Exception):
    """It does not answer or refuses. The text says which, without credentials."""


class ClickHouse(Struct, frozen=True, kw_only=True):
    """Where it is and as whom to ask."""

    scheme: str
    host: str
    port: int
    database: str
    user: str
    password: str

    @property
    def address(self) -> str:
        """Without credentials, for messages."""
        return f"{self.scheme}://{self.host}:{self.port}/{self.database}"

    def rows(self, statement: str, parameters: Mapping[str, str], timeout_s: float) -> list[list[Any]]:
        """The rows that it answers. Raises ClickHouseError."""
        asked = {
            "database": self.database,
            "default_format": "JSONCompact",
            "output_format_json_quote_64bit_integers": 0,
        }
        asked.update({f"param_{name}": value for name, value in parameters.items()})
        headers = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password}
        connection = _KINDS[self.scheme](self.host, self.port, timeout=max(timeout_s, 0.1))
        try:
            connection.request("POST", f"/?{urlencode(asked)}", body=statement.encode(), headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ClickHouseError(f"{self.address} does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status != 200:
            said = " ".join(body.decode("utf-8", "replace").split())[:_SAID_CHARACTERS]
            raise ClickHouseError(f"{self.address} answers {answer.status}: {said}")
        try:
            rows: list[list[Any]] = orjson.loads(body)["data"]
        except (ValueError, KeyError, TypeError):
            raise ClickHouseError(f"{self.address} does not answer as ClickHouse does") from None
        return rows


def from_url(url: str, user: str = "", password_file: Path | None = None) -> ClickHouse:
    """`http[s]://user:password@host:port/database`; `user` and a file with a password win. Raises ClickHouseError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ClickHouseError(f"the address of ClickHouse cannot be read: {error}") from None
    if parts.scheme not in _KINDS or not parts.hostname:
        raise ClickHouseError("the address of ClickHouse must look like http://user:password@host:8123/rootrank")
    password = unquote(parts.password or "") if not user else ""
    if password_file is not None:
        try:
            password = read_small(password_file).decode("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ClickHouseError(f"the password in {password_file} cannot be read: {error}") from None
    return ClickHouse(
        scheme=parts.scheme, host=parts.hostname, port=port or (8443 if parts.scheme == "https" else 8123),
        database=unquote(parts.path.strip("/")) or "rootrank", user=user or unquote(parts.username or "default"),
        password=password,
    )  # fmt: skip
