"""The one way to ClickHouse: its HTTP interface, for a server and for the embedded engine alike."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any, Final, TypeVar

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import Error, OperationalError
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from pipeline.store.errors import StoreRefusedError, StoreUnreachableError
from pipeline.store.settings import DEFAULT_USER, StoreSettings, as_reader
from pipeline.store.tables import Table

EMBEDDED_READER: Final = "rootrank_reader"
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})

# A node whose clock jumps through the calendar must not stop the rows of all others.
INSERT_SETTINGS: Final = {"max_partitions_per_insert_block": 0}

T = TypeVar("T")


def reading_settings(settings: StoreSettings) -> StoreSettings:
    """How to read where no reader is named. The engine of `rootrank up` has one for that, who reaches tables only;
    any other ClickHouse is asked to refuse writes. Raises StoreUnreachableError.
    """
    if settings.user != DEFAULT_USER or settings.host not in LOOPBACK_HOSTS:
        return as_reader(settings)
    reader = as_reader(settings, user=EMBEDDED_READER)
    store = Store(reader)
    try:
        store.ping()
    except StoreRefusedError:
        return as_reader(settings)
    finally:
        store.close()
    return reader


class Store:
    """One connection. Every failure is a StoreError: unreachable (try again) or refused (the engine said why).

    Not for use by two threads at once.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._client: Client | None = None
        self._types: dict[str, Sequence[Any]] = {}

    def ping(self) -> None:
        """Raise StoreUnreachableError unless the engine answers a query."""
        self.rows("SELECT 1", database="")

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str | None = None) -> None:
        """Run a statement that has no result."""
        self._call(lambda client: client.command(sql, parameters=dict(parameters or {})), database)

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str | None = None
    ) -> Sequence[Sequence[Any]]:
        """Rows of a query, as Python values."""
        return self._call(lambda client: client.query(sql, parameters=dict(parameters or {})).result_rows, database)

    def blocks(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Iterator[Sequence[Sequence[Any]]]:
        """Rows of a query that may be many, some thousands at a time, as Python values."""
        opened = self._call(lambda client: client.query_row_block_stream(sql, parameters=dict(parameters or {})), None)
        try:
            with opened as stream:
                yield from stream
        except Error as error:
            raise _refused(error) from None
        except (OSError, HTTPError) as error:
            self.close()
            raise self._unreachable(error) from None

    def text(self, sql: str, parameters: Mapping[str, Any] | None, output: str) -> bytes:
        """The answer as the engine formats it (`output`: a ClickHouse format such as JSONCompact)."""
        return self._call(lambda client: client.raw_query(sql, parameters=dict(parameters or {}), fmt=output), None)

    def insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, whole columns at a time."""
        columns = [list(column) for column in zip(*rows, strict=True)]

        def send(client: Client) -> None:
            types = self._types.get(table.name)
            if types is None:
                context = client.create_insert_context(table.name, table.columns)
                types = self._types[table.name] = context.column_types
            client.insert(
                table.name,
                columns,
                column_names=table.columns,
                column_types=types,
                column_oriented=True,
                settings=INSERT_SETTINGS,
            )

        self._call(send, None)

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._types.clear()

    def _call(self, use: Callable[[Client], T], database: str | None) -> T:
        try:
            client = self._connected()
            client.database = self.settings.database if database is None else database
            return use(client)
        except OperationalError as error:
            self.close()
            raise _refused(error) if error.code else self._unreachable(error) from None
        except Error as error:
            raise _refused(error) from None
        except (OSError, HTTPError) as error:
            self.close()
            raise self._unreachable(error) from None

    def _connected(self) -> Client:
        if self._client is None:
            # They warn at every attempt, with a traceback; we say once that the engine is away.
            for name in ("clickhouse_connect", "urllib3.connectionpool"):
                logging.getLogger(name).setLevel(logging.ERROR)
            settings = self.settings
            self._client = clickhouse_connect.get_client(
                host=settings.host,
                port=settings.port,
                secure=settings.secure,
                username=settings.user,
                password=settings.password,
                settings={"readonly": "2"} if settings.readonly else None,
                connect_timeout=10,
                send_receive_timeout=settings.timeout_s,
                autogenerate_session_id=False,
                client_name="rootrank",
            )
        return self._client

    def _unreachable(self, error: Exception) -> StoreUnreachableError:
        return StoreUnreachableError(
            f"ClickHouse at {self.settings.address} does not answer ({_why(error)}). "
            f"Start it, or `rootrank up` which brings its own, or set CLICKHOUSE_URL"
        )


def _why(error: BaseException) -> str:
    """The system's own word for it where there is one, else whole words of what the driver says."""
    cause: BaseException | None = error
    timed_out = False
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        # A refused connection is a time-out to urllib3, so the search for the system's word goes on.
        timed_out = timed_out or isinstance(cause, TimeoutError | HTTPTimeoutError)
        reason = getattr(cause, "reason", None)
        cause = cause.__cause__ or cause.__context__ or (reason if isinstance(reason, BaseException) else None)
    return "timed out" if timed_out else shorten(str(error), 120, placeholder=" …")


def _refused(error: Error) -> StoreRefusedError:
    return StoreRefusedError(_sentence(" ".join(str(error).split())), code=error.code or 0)


def _sentence(text: str) -> str:
    """What the engine says, with the name of its code, out of the frame the driver and the engine put around it."""
    _, framed, said = text.partition("DB::Exception: ")
    said = (said if framed else text).partition(" (for url ")[0]
    return said.partition(" (version ")[0]
