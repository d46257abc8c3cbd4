"""An HTTP request of a ClickHouse client, taken apart: user, query, parameters, settings, body."""

from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import IO
from urllib.parse import parse_qsl, urlsplit

from pipeline.embedded.clickhouse.problems import NOT_IMPLEMENTED, QUERY_TOO_LARGE, refusal

MAX_QUERY_BYTES = 16 << 20
INSERT_HEAD_BYTES = 1 << 20
# What ClickHouse itself does not take for a setting.
RESERVED = frozenset({
    "query", "user", "password", "database", "default_format", "query_id", "session_id", "session_timeout",
    "session_check", "quota_key", "role", "stacktrace", "compress", "decompress", "buffer_size", "wait_end_of_query",
    "client_protocol_version", "http_write_exception_in_output_format", "close_session", "add_http_cors_header",
})  # fmt: skip
MULTIPART_MAX_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Url:
    """The path and the parameters of a request."""

    path: str
    values: Mapping[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """The engine settings among the parameters."""
        return {
            name: value for name, value in self.values.items() if name not in RESERVED and not name.startswith("param_")
        }

    @property
    def parameters(self) -> dict[str, str]:
        """The query parameters, by their name in the query."""
        return {name[6:]: value for name, value in self.values.items() if name.startswith("param_")}


def parse_url(target: str) -> Url:
    """Take a request target apart; the last of equal names counts."""
    parts = urlsplit(target)
    return Url(path=parts.path or "/", values=dict(parse_qsl(parts.query, keep_blank_values=True)))


def with_form(url: Url, content_type: str, body: IO[bytes]) -> Url:
    """Return the URL with the fields of a multipart form as further parameters (long queries and parameters).

    Raises:
        StatementError: the form brings an external table, which is not supported here.

    """
    head = f"Content-Type: {content_type}\r\nMIME-Version: 1.0\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + body.read(MULTIPART_MAX_BYTES))
    fields: dict[str, str] = {}
    for part in message.iter_parts():
        name = str(part.get_param("name", "", header="content-disposition"))
        if part.get_filename() is not None:
            raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", f"External table {name!r}: not supported here.")
        content = part.get_payload(decode=True)
        fields[name] = content.decode("utf-8") if isinstance(content, bytes) else ""
    return Url(path=url.path, values={**url.values, **fields})


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The head of a statement (all of it, unless it is a long INSERT) and where its body goes on."""

    head: bytes
    body: IO[bytes]
    is_complete: bool

    def whole_text(self) -> str:
        """The full text.

        Raises:
            StatementError: the statement is longer than 16 MiB.

        """
        rest = b"" if self.is_complete else self.body.read(MAX_QUERY_BYTES + 1 - len(self.head))
        if len(self.head) + len(rest) > MAX_QUERY_BYTES:
            text = f"The statement is longer than {MAX_QUERY_BYTES} bytes."
            raise refusal(QUERY_TOO_LARGE, "QUERY_IS_TOO_LARGE", text)
        return (self.head + rest).decode("utf-8", errors="replace")


def read_statement(query: str, body: IO[bytes]) -> Statement:
    """Join the query of the URL and the first part of the body as ClickHouse does: query, line end, body."""
    piece = body.read(INSERT_HEAD_BYTES)
    head = query.encode("utf-8") + (b"\n" if query and piece else b"") + piece
    return Statement(head=head, body=body, is_complete=len(piece) < INSERT_HEAD_BYTES)
