"""Who may do what: `default` reads and writes, `rootrank_reader` only reads; neither reaches files or other hosts."""

import hmac
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from pipeline.embedded.clickhouse.problems import ACCESS_DENIED, AUTHENTICATION_FAILED, READONLY, refusal
from pipeline.embedded.clickhouse.sqltext import Token, tokens

WRITER = "default"
READER = "rootrank_reader"
READING_KEYWORDS = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "EXISTS"})
# They reach files, other hosts or this process, and the engine checks no right for some of their uses.
OUTSIDE = frozenset({"file", "python", "disk", "executable"})
# Tables of `system` that show what others ask, and a function that reads tables by a pattern of their names. No right
# of the engine's keeps a role from them.
OF_OTHERS = frozenset({
    "processes", "user_processes", "processlist", "query_cache", "query_condition_cache", "query_log", "user_query_log",
    "query_thread_log", "query_views_log", "session_query_ids", "asynchronous_inserts", "merge",
})  # fmt: skip
# Engines of tables and databases whose data lie in the data folder and nowhere else.
INSIDE_ENGINES = frozenset({"ATOMIC", "MEMORY", "NULL"})


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


def require_reading(canonical_sql: str, parameters: Mapping[str, str]) -> None:
    """Refuse whatever a reader may not do and the engine's role does not already refuse.

    Takes the statement as the engine itself prints it: comments, quoting tricks and second statements are gone there;
    and the values of its parameters: one may stand for a table's name.
    """
    parsed = list(tokens(canonical_sql))
    keyword = parsed[0].text.upper() if parsed else ""
    if keyword not in READING_KEYWORDS:
        raise refusal(READONLY, "READONLY", f"{READER}: Cannot execute {keyword or 'nothing'} in readonly mode.")
    named = {token.text.lower() for token in parsed if token.kind in {"word", "name"}}
    if "identifier" in named:
        named |= {value.lower().rpartition(".")[2].strip(' `"') for value in parameters.values()}
    if shown := sorted(named & OF_OTHERS):
        text = (
            f"{READER}: Cannot use {shown[0]}: a reader does not see what others ask. Nothing else can have this name."
        )
        raise refusal(ACCESS_DENIED, "ACCESS_DENIED", text)


def require_inside(canonical_sql: str, parameters: Mapping[str, str], *, own_infile: str = "") -> None:
    """Refuse, whoever asks, what reaches outside the tables and is not refused by the engine's roles.

    Takes the statement as the engine prints it, and the values of its parameters: one may stand for a function's name.
    `own_infile`: the one text that FROM INFILE may name.
    """
    parsed = list(tokens(canonical_sql))
    words = [token.text.upper() if token.kind == "word" else "" for token in parsed]
    if "IDENTIFIER" in words and any(value.strip().lower() in OUTSIDE for value in parameters.values()):
        raise _denied("Cannot use a function that reaches outside the tables.")
    for index, token in enumerate(parsed):
        before = parsed[index - 1].text.upper() if index else ""
        after = parsed[index + 1] if index + 1 < len(parsed) else _NOTHING
        if words[index] == "OUTFILE" and before == "INTO":
            raise _denied("Cannot write INTO OUTFILE.")
        if words[index] == "INFILE" and before == "FROM" and (after.kind != "text" or after.text != own_infile):
            raise _denied("Cannot read FROM INFILE.")
        if token.kind in {"word", "name"} and token.text.lower() in OUTSIDE:
            _refuse_function(token, before, after)
        if before == "=" and index > 1 and words[index - 2] == "ENGINE" and words[0] in {"CREATE", "ATTACH", "REPLACE"}:
            _require_inside_engine(words[index])


def _refuse_function(token: Token, before: str, after: Token) -> None:
    """A scalar function like file() has no access check in the engine; it can be called or handed to another one."""
    called = after.kind == "sign" and after.text == "("
    handed_on = before in {"(", "APPLY"}
    if called or handed_on:
        raise _denied(f"Cannot use the function {token.text}() (a column of that name is written t.{token.text}).")


def _require_inside_engine(engine: str) -> None:
    if not engine.endswith("MERGETREE") and engine not in INSIDE_ENGINES:
        raise _denied(f"Cannot use the engine {engine or 'given'}; the MergeTree family, Memory and Null can be used.")


def _denied(text: str) -> Exception:
    return refusal(ACCESS_DENIED, "ACCESS_DENIED", f"{text} This engine reads and writes its own tables only.")


_NOTHING = Token(kind="sign", text="", end=0)
