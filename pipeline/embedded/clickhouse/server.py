"""ClickHouse's HTTP interface in front of the embedded engine, on loopback only."""

import io
import logging
import secrets
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

import orjson

from pipeline.embedded.clickhouse.access import authenticate, credentials_of
from pipeline.embedded.clickhouse.bodies import compressed, compressed_whole, receive, response_encoding
from pipeline.embedded.clickhouse.engine import Context, Engine
from pipeline.embedded.clickhouse.problems import NOT_IMPLEMENTED, READONLY, StatementError, refusal
from pipeline.embedded.clickhouse.requests import Statement, Url, parse_url, read_statement, with_form
from pipeline.embedded.clickhouse.sqltext import InsertHead, first_keyword, output_format, split_insert
from pipeline.embedded.ports import LOOPBACK

logger = logging.getLogger(__name__)

IDLE_CONNECTION_S = 300
OWN_HOSTS = frozenset({LOOPBACK, "localhost", "[::1]", ""})
# Formats whose blocks can be sent one after the other as the engine makes them; all others come whole.
STREAMED_FORMATS = frozenset({"native", "tsv", "tabseparated", "tsvraw", "csv", "jsoneachrow", "rowbinary"})
CONTENT_TYPES = {
    "tsv": "text/tab-separated-values; charset=UTF-8", "tabseparated": "text/tab-separated-values; charset=UTF-8",
    "csv": "text/csv; charset=UTF-8", "csvwithnames": "text/csv; charset=UTF-8",
    "json": "application/json; charset=UTF-8", "jsoncompact": "application/json; charset=UTF-8",
    "jsoneachrow": "application/x-ndjson; charset=UTF-8", "native": "application/octet-stream",
}  # fmt: skip


class ClickHouseHttpServer(ThreadingHTTPServer):
    """One thread a connection; statements run side by side in the engine."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, engine: Engine, passwords: Mapping[str, str], temporary: Path) -> None:
        self.engine = engine
        self.passwords = passwords
        self.temporary = temporary
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection in one line instead of a traceback on standard error."""
        logger.info("a connection of %s broke", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: ClickHouseHttpServer
    protocol_version = "HTTP/1.1"
    server_version = "rootrank-clickhouse"
    timeout = IDLE_CONNECTION_S
    wbufsize = 1 << 16

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)

    def do_GET(self) -> None:
        self._answer(io.BytesIO(), writes_allowed=False)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        try:
            body = receive(cast("Any", self.rfile), self.headers, self.server.temporary)
        except StatementError as problem:
            self.close_connection = True  # what is left of the body cannot be told from a next request
            self._send_problem(problem, more={"Connection": "close"})
            return
        with closing(body):
            self._answer(body, writes_allowed=True)

    def _answer(self, body: IO[bytes], *, writes_allowed: bool) -> None:
        url = parse_url(self.path)
        self._query_id = url.values.get("query_id") or str(uuid.uuid4())
        try:
            _require_own_host(self.headers)
            content_type = self.headers.get("Content-Type", "")
            if content_type.startswith("multipart/form-data"):
                url, body = with_form(url, content_type, body), io.BytesIO()
            statement = read_statement(url.values.get("query", ""), body)
            if url.path in {"/ping", "/replicas_status"} or (url.path == "/" and not statement.head):
                self._send_whole(b"Ok.\n", "text/html; charset=UTF-8", "identity")
            elif url.path != "/":
                content = b"There is no handle " + url.path.encode() + b"\n"
                self._send_whole(content, "text/plain; charset=UTF-8", "identity", status=404)
            else:
                self._run(url, statement, writes_allowed=writes_allowed)
        except StatementError as problem:
            self._send_problem(problem)

    def _run(self, url: Url, statement: Statement, *, writes_allowed: bool) -> None:
        user = authenticate(credentials_of(self.headers, url.values), self.server.passwords)
        if url.values.get("compress", "0") == "1" or url.values.get("decompress", "0") == "1":
            text = "For compression use Content-Encoding and Accept-Encoding."
            raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", text)
        context = Context(
            user=user,
            database=url.values.get("database") or self.headers.get("X-ClickHouse-Database") or "",
            settings=url.settings,
            parameters=url.parameters,
            writes_allowed=writes_allowed,
        )
        # latin-1 keeps one character a byte, so that the data of an INSERT start at the same place in both.
        insert = split_insert(statement.head.decode("latin-1"))
        with self.server.engine.connection(context) as session:
            if insert is not None:
                self._insert(session, insert, statement, context)
            else:
                self._query(session, statement.whole_text(), url, context)

    def _insert(self, session: Any, latin_head: InsertHead, statement: Statement, context: Context) -> None:
        if context.user != "default" or not context.writes_allowed:
            raise refusal(READONLY, "READONLY", f"{context.user}: Cannot execute INSERT in readonly mode.")
        head = replace(latin_head, target=_utf8(latin_head.target), settings=_utf8(latin_head.settings))
        with tempfile.NamedTemporaryFile(dir=self.server.temporary) as data:
            data.write(statement.head[head.data_start :])
            shutil.copyfileobj(statement.body, data)
            data.flush()
            written = self.server.engine.insert(session, head, Path(data.name))
        summary = {"read_rows": written.rows, "written_rows": written.rows, "written_bytes": written.bytes}
        self._send_whole(b"", "text/plain; charset=UTF-8", "identity", summary=summary)

    def _query(self, session: Any, sql: str, url: Url, context: Context) -> None:
        engine = self.server.engine
        engine.check(session, sql, context)
        default = url.values.get("default_format") or self.headers.get("X-ClickHouse-Format") or "TabSeparated"
        output = output_format(sql) or default
        content_type = CONTENT_TYPES.get(output.lower(), "application/octet-stream")
        encoding = response_encoding(self.headers, context.settings)
        if output.lower() in STREAMED_FORMATS and first_keyword(sql) in {"SELECT", "WITH", "FROM"}:
            blocks = engine.stream(session, sql, default, context)
            if blocks is not None:
                self._send_stream(blocks, content_type, encoding, output)
                return
        result = engine.query(session, sql, default, context)
        summary = {"read_rows": result.storage_rows_read(), "read_bytes": result.storage_bytes_read()}
        summary |= {"result_rows": result.rows_read(), "written_rows": result.rows_written()}
        self._send_whole(result.bytes(), content_type, encoding, summary=summary, output=output)

    def _send_stream(self, blocks: Iterator[bytes], content_type: str, encoding: str, output: str) -> None:
        with closing(cast("Any", blocks)):
            first = next(blocks, b"")  # most errors show here, before anything was sent
            tag = secrets.token_hex(8)
            self._send_head(200, content_type, encoding, output=output, more={"X-ClickHouse-Exception-Tag": tag})
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command == "HEAD":
                return
            for piece in compressed(_with_late_error(chain([first], blocks), tag), encoding):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    def _send_whole(
        self,
        content: bytes,
        content_type: str,
        encoding: str,
        *,
        status: int = 200,
        summary: Mapping[str, int] | None = None,
        output: str = "",
        more: Mapping[str, str] | None = None,
    ) -> None:
        encoding = encoding if content else "identity"
        content = compressed_whole(content, encoding)
        self._send_head(status, content_type, encoding, output=output, summary=summary, more=more)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(
        self,
        status: int,
        content_type: str,
        encoding: str,
        *,
        output: str = "",
        summary: Mapping[str, int] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-ClickHouse-Server-Display-Name", "rootrank-embedded")
        self.send_header("X-ClickHouse-Query-Id", _one_line(getattr(self, "_query_id", "")))
        self.send_header("X-ClickHouse-Timezone", "UTC")
        counts = {name: str(count) for name, count in (summary or {"read_rows": 0}).items()}
        self.send_header("X-ClickHouse-Summary", orjson.dumps(counts).decode())
        if output:
            self.send_header("X-ClickHouse-Format", _one_line(output))
        if encoding != "identity":
            self.send_header("Content-Encoding", encoding)
        for name, value in (more or {}).items():
            self.send_header(name, value)

    def _send_problem(self, problem: StatementError, *, more: Mapping[str, str] | None = None) -> None:
        content = f"{problem.text} (version {self.server.engine.version} (chdb))\n".encode()
        code = {"X-ClickHouse-Exception-Code": str(problem.code), **(more or {})}
        self._send_whole(content, "text/plain; charset=UTF-8", "identity", status=problem.status, more=code)


def _utf8(latin: str) -> str:
    return latin.encode("latin-1").decode("utf-8", errors="replace")


def _with_late_error(blocks: Iterator[bytes], tag: str) -> Iterator[bytes]:
    """Yield the blocks; a late error is told at the end of the body, as ClickHouse 25.11 and newer do."""
    try:
        yield from blocks
    except StatementError as problem:
        length = len(problem.text.encode()) + 1
        yield f"__exception__\r\n{tag}\r\n{problem.text}\n{length} {tag}\r\n__exception__\r\n".encode()


def _require_own_host(headers: Message) -> None:
    """Refuse what a web page in a browser on this machine may send: a foreign host name or a foreign origin."""
    host = headers.get("Host", "").rpartition(":")[0] or headers.get("Host", "")
    if host.lower() not in OWN_HOSTS:
        raise refusal(READONLY, "READONLY", f"Host {host!r} is not this machine's loopback address.")
    origin = headers.get("Origin")
    if origin and origin.partition("://")[2].lower() != headers.get("Host", "").lower():
        raise refusal(READONLY, "READONLY", f"Requests of the web page {origin!r} are not served.")


def _one_line(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:200]
