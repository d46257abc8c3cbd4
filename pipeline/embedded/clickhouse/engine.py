"""The chdb engine: one process, one path, a fresh connection for each statement."""

import logging
import mmap
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from pipeline.embedded.clickhouse.access import OUTSIDE, READER, require_inside, require_reading
from pipeline.embedded.clickhouse.problems import (
    SYNTAX_ERROR,
    TOO_MANY_QUERIES,
    StatementError,
    from_engine,
    refusal,
)
from pipeline.embedded.clickhouse.sqltext import InsertHead
from pipeline.embedded.errors import EmbeddedError, MissingProgramError

logger = logging.getLogger(__name__)

USERS = Path(__file__).parents[1] / "clickhouse_users.xml"
MAX_STATEMENTS = 16
QUEUE_TIMEOUT_S = 60.0
_NOT_STREAMED = "Streaming query is not supported"
# Tables of requests that name no database. In the engine's own `default` every file of the machine is a table too.
UNNAMED_DATABASE = "scratch"
# Rows of VALUES may be expressions. Where they might name a function that reads files, they are taken as plain values.
_NO_EXPRESSIONS = (
    "input_format_values_interpret_expressions = 0, input_format_values_deduce_templates_of_expressions = 0"
)
_NAMES_A_FUNCTION = re.compile(rb"(?i)%s|[`\"\xe2]" % "|".join(sorted(OUTSIDE)).encode())


@dataclass(frozen=True, kw_only=True)
class Context:
    """What surrounds a statement: who runs it, where, with which settings and parameters."""

    user: str
    database: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    writes_allowed: bool


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an INSERT wrote."""

    rows: int
    bytes: int


class Engine:
    """The ClickHouse engine on one folder. Statements of several threads run side by side."""

    def __init__(self, data_dir: Path) -> None:
        """Open the engine.

        Raises:
            MissingProgramError: the chdb wheel is not installed.
            EmbeddedError: the folder cannot be opened.

        """
        if "?" in str(data_dir) or "&" in str(data_dir):
            raise EmbeddedError(f"{data_dir}: the engine cannot use a path with ? or &; choose another data folder")
        try:
            from chdb.session import Session
        except ImportError as error:
            raise MissingProgramError(
                "the ClickHouse engine is not installed: pip install 'rootrank[embedded]', "
                "or set CLICKHOUSE_URL to a ClickHouse you have"
            ) from error
        self._open_session = Session
        self._address = f"{data_dir / 'store'}?config-file={quote(str(write_config(data_dir)))}"
        self._slots = threading.BoundedSemaphore(MAX_STATEMENTS)
        try:
            self._anchor = Session(self._address)  # keeps merges and the engine alive between statements
            self._anchor.query(f"CREATE DATABASE IF NOT EXISTS {UNNAMED_DATABASE}")
            self.version = str(self._anchor.query("SELECT version()", "TSV").bytes().decode().strip())
        except Exception as error:
            raise EmbeddedError(f"the ClickHouse engine cannot open {data_dir}: {error}") from error

    def close(self) -> None:
        """Close the engine; statements still running are cut off."""
        self._anchor.close()

    @contextmanager
    def connection(self, context: Context) -> Iterator[Any]:
        """Give a connection with the user's role, the database and the settings of one request."""
        if not self._slots.acquire(timeout=QUEUE_TIMEOUT_S):
            raise refusal(TOO_MANY_QUERIES, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many statements at once.")
        try:
            with closing(self._open_session(self._address)) as session:
                try:
                    for statement in preparation(context):
                        session.query(statement)
                except Exception as error:
                    raise from_engine(error) from None
                yield session
        finally:
            self._slots.release()

    def check(self, session: Any, sql: str, context: Context) -> None:
        """Refuse several statements at once, what reaches outside, and for the reader all that is not reading."""
        canonical = self._canonical(session, sql)
        if context.user == READER:
            require_reading(canonical, context.parameters)
        require_inside(canonical, context.parameters)

    def _canonical(self, session: Any, sql: str) -> str:
        """Return the statement as the engine's own parser prints it: no comment, one way of quoting, one statement."""
        try:
            result = session.query("SELECT formatQuerySingleLine({sql:String})", "TSVRaw", params={"sql": escaped(sql)})
        except Exception as error:
            problem = from_engine(error)
            raise StatementError(SYNTAX_ERROR, problem.text) from None
        return str(result.bytes().decode("utf-8", errors="replace"))

    def query(self, session: Any, sql: str, output: str, context: Context) -> Any:
        """Run a statement and return its whole result (chdb's result object)."""
        try:
            return session.query(sql, output, params=dict(context.parameters))
        except Exception as error:
            raise from_engine(error) from None

    def stream(self, session: Any, sql: str, output: str, context: Context) -> Iterator[bytes] | None:
        """Run a query and yield its result block by block; None when it is no kind that streams."""
        try:
            result = session.send_query(sql, output, params=dict(context.parameters))
        except Exception as error:
            if _NOT_STREAMED in str(error):
                return None
            raise from_engine(error) from None
        return _blocks(result)

    def insert(self, session: Any, head: InsertHead, data_file: Path) -> Written:
        """Insert the data of a file. The engine reads it itself, so that all limits and settings of inserts hold."""
        settings = head.settings
        if head.data_format.lower() == "values" and _may_name_a_function(data_file):
            settings = f"{settings or 'SETTINGS'}{',' if settings else ''} {_NO_EXPRESSIONS}"
        start, end = f"{head.target} FROM INFILE", f"COMPRESSION 'none' {settings} FORMAT {head.data_format}"
        require_inside(self._canonical(session, f"{start} 'own' {end}"), {}, own_infile="own")
        try:
            result = session.query(f"{start} {quoted_text(str(data_file))} {end}", "Null")
        except Exception as error:
            raise from_engine(error) from None
        return Written(rows=result.rows_written(), bytes=result.bytes_written())


def _blocks(result: Any) -> Iterator[bytes]:
    try:
        for block in result:
            yield block.bytes()
    except GeneratorExit:
        result.cancel()
        raise
    except Exception as error:
        raise from_engine(error) from None


def _may_name_a_function(data_file: Path) -> bool:
    if not data_file.stat().st_size:
        return False
    with data_file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _NAMES_A_FUNCTION.search(data) is not None


def preparation(context: Context) -> Iterator[str]:
    """Yield the statements that set up a connection; after `readonly` the engine itself guards the rest."""
    yield f"SET ROLE {'reader' if context.user == READER else 'writer'}"
    if context.user == READER:
        # The profile brings the bounds in which these may be changed, and no values.
        yield "SET max_execution_time = 60, max_result_rows = 1000000, profile = 'reader'"
    if context.user == READER or not context.writes_allowed:
        yield "SET readonly = 2"
    yield f"USE {quoted_name(context.database or UNNAMED_DATABASE)}"
    for name, value in context.settings.items():
        yield f"SET {quoted_name(name)} = {quoted_text(value)}"


def quoted_name(name: str) -> str:
    """Return an identifier in backquotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quoted_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def escaped(text: str) -> str:
    """Return a text as a query parameter's value is written: tab separated escaping."""
    for character, sign in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0")):
        text = text.replace(character, sign)
    return text


def write_config(data_dir: Path) -> Path:
    """Write the engine's configuration and return its path."""
    path = data_dir / "config.xml"
    users = escape(str(USERS))
    path.write_text(
        f"""<clickhouse>
  <logger><level>none</level></logger>
  <users_config>{users}</users_config>
  <user_directories><users_xml><path>{users}</path></users_xml></user_directories>
</clickhouse>
""",
        encoding="utf-8",
    )
    os.environ["TZ"] = "UTC"
    return path
