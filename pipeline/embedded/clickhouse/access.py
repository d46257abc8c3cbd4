"""Who may do what: `default` reads and writes, `rootrank_reader` only reads, and never files or other hosts."""

import hmac
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from pipeline.embedded.clickhouse.problems import AUTHENTICATION_FAILED, READONLY, refusal
from pipeline.embedded.clickhouse.sqltext import Token, tokens

WRITER = "default"
READER = "rootrank_reader"
READING_KEYWORDS = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "EXISTS"})


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A user name and a password as a request gives them."""

    user: str
    password: str


def read_passwords(path: Path | None) -> dict[str, str]:
    """Return the password by user; without a file both users have none. One `user:password` a line.

    Raises:
        ValueError: a line names an unknown user or has no colon.

    """
    passwords = {WRITER: "", READER: ""}
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None else []
    for number, line in enumerate(lines, start=1):
        user, colon, password = line.partition(":")
        if line.strip() and (not colon or user not in passwords):
            raise ValueError(f"{path}:{number}: expected `{WRITER}:PASSWORD` or `{READER}:PASSWORD`")
        if line.strip():
            passwords[user] = password
    return passwords


def credentials_of(headers: Message, url: Mapping[str, str]) -> Credentials:
    """Return the credentials of a request: basic authentication, X-ClickHouse headers, or URL parameters."""
    authorization = headers.get("Authorization", "")
    if authorization.startswith("Basic "):
        try:
            user, _, password = b64decode(authorization[6:], validate=True).decode("utf-8").partition(":")
        except ValueError:
            raise refusal(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", "Authorization cannot be read") from None
        return Credentials(user=user or WRITER, password=password)
    user = headers.get("X-ClickHouse-User") or url.get("user") or WRITER
    return Credentials(user=user, password=headers.get("X-ClickHouse-Key") or url.get("password") or "")


def authenticate(credentials: Credentials, passwords: Mapping[str, str]) -> str:
    """Return the user's name, or raise StatementError 516."""
    expected = passwords.get(credentials.user)
    if expected is None or not hmac.compare_digest(expected.encode(), credentials.password.encode()):
        text = f"{credentials.user}: Authentication failed: password is incorrect, or there is no user with such name."
        raise refusal(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", text)
    return credentials.user


def require_reading(canonical_sql: str) -> None:
    """Refuse whatever a reader may not do and the engine's role does not already refuse.

    Takes the statement as the engine itself prints it: comments, quoting tricks and second statements are gone there.
    """
    parsed = list(tokens(canonical_sql))
    keyword = parsed[0].text.upper() if parsed else ""
    if keyword not in READING_KEYWORDS:
        raise _read_only(f"Cannot execute {keyword or 'an empty statement'} in readonly mode.")
    for index, token in enumerate(parsed):
        before = parsed[index - 1].text.upper() if index else ""
        after = parsed[index + 1] if index + 1 < len(parsed) else Token(kind="sign", text="", end=0)
        if token.kind == "word" and token.text.upper() == "OUTFILE" and before == "INTO":
            raise _read_only("Cannot write INTO OUTFILE in readonly mode.")
        if token.kind in {"word", "name"} and token.text.lower() in {"file", "python"}:
            _refuse_file_function(token, before, after)


def _refuse_file_function(token: Token, before: str, after: Token) -> None:
    """The scalar function file() has no access check in the engine; it can be called or handed to another function."""
    called = after.kind == "sign" and after.text == "("
    handed_on = before in {"(", "APPLY"}
    if called or handed_on:
        raise _read_only(
            f"Cannot use {token.text}() in readonly mode; write a column of that name with its table: t.{token.text}."
        )


def _read_only(text: str) -> Exception:
    return refusal(READONLY, "READONLY", f"{READER}: {text}")
