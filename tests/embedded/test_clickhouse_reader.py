"""rootrank_reader reads, and only tables: every way out that is known is tried on the real engine."""

import http.client
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from pipeline.embedded.clickhouse import ClickHouseServer

pytestmark = pytest.mark.clickhouse

READONLY, ACCESS_DENIED, SYNTAX_ERROR = 164, 497, 62
CONSTRAINT_VIOLATION, TOO_MANY_ROWS = 452, 396
LIMITS = b"60\t1000000\n"
SECRET = "the content of a file of this machine"


@pytest.fixture
def reader(clickhouse_server: ClickHouseServer) -> Iterator[Client]:
    """The reader in a database with one table `t` of one row."""
    name = f"t{uuid.uuid4().hex}"
    with clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_server.port) as writer:
        writer.command(f"CREATE DATABASE {name}")
        writer.command(f"CREATE TABLE {name}.t (id UInt64, file String) ENGINE = ReplacingMergeTree ORDER BY id")
        writer.command(f"INSERT INTO {name}.t VALUES (1, 'train.py')")
        writer.command(f"CREATE VIEW {name}.v AS SELECT * FROM {name}.t FINAL SETTINGS max_threads = 1")
        with clickhouse_connect.get_client(
            host="127.0.0.1", port=clickhouse_server.port, username="rootrank_reader", database=name
        ) as client:
            yield client
        writer.command(f"DROP DATABASE {name}")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return str(path)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file FROM t", "SELECT t.file, count() FROM t GROUP BY t.file", "WITH 1 AS x SELECT x", "SHOW TABLES",
        "(SELECT 1) UNION ALL (SELECT 2)", "FROM v SELECT id", "DESCRIBE TABLE t", "EXPLAIN SELECT * FROM t",
        "EXISTS TABLE t", "SELECT 'file('", "SELECT * FROM v", "SELECT * FROM t SETTINGS max_threads = 1",
        "SELECT name FROM system.tables", "SELECT * FROM numbers(2)", "SHOW CREATE TABLE t; ",
    ],
)  # fmt: skip
def test_the_reader_reads(reader: Client, sql: str) -> None:
    reader.raw_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (2, '')", "INSERT INTO t SELECT 2, ''", "ALTER TABLE t DELETE WHERE 1",
        "DELETE FROM t WHERE 1", "DROP TABLE t", "TRUNCATE TABLE t", "DETACH TABLE t", "OPTIMIZE TABLE t FINAL",
        "CREATE TABLE u (x Int8) ENGINE = Memory", "CREATE TEMPORARY TABLE u (x Int8)", "RENAME TABLE t TO u",
        "SYSTEM FLUSH LOGS", "SYSTEM STOP MERGES", "KILL QUERY WHERE 1", "SET max_threads = 1", "SET readonly = 0",
        "SET ROLE writer", "SET ROLE ALL", "USE system", "GRANT writer TO default", "EXCHANGE TABLES t AND v",
        "SELECT 1; DROP TABLE t", "SELECT 1 SETTINGS readonly = 0", "/**/ drop table t", "BACKUP TABLE t TO File('x')",
        "WITH 3 AS x INSERT INTO t SELECT x, ''", "WITH x AS (SELECT 3) INSERT INTO t SELECT *, '' FROM x",
        "-- a\nINSERT INTO t SELECT 3, ''", "# a\nINSERT INTO t SELECT 3, ''",
        "EXPLAIN PIPELINE INSERT INTO t SELECT 3, ''",
        "SELECT 1; INSERT INTO t SELECT 3, ''", "FROM t INSERT INTO t SELECT 3, ''",
        "EXECUTE AS default DROP TABLE t", "INSERT INTO FUNCTION null('x Int8') SELECT 1", "CHECK TABLE t",
    ],
)  # fmt: skip
def test_the_reader_changes_nothing(reader: Client, sql: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query(sql)

    assert refused.value.code in {READONLY, ACCESS_DENIED, SYNTAX_ERROR}
    assert reader.query("SELECT * FROM t").result_rows == [(1, "train.py")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file('{path}')", "SELECT `file`('{path}')", 'SELECT "file"(\'{path}\')',
        "SELECT file /* ( */ ('{path}')",
        "SELECT `fil\\x65`('{path}')", "SELECT “file”('{path}')", "SELECT * APPLY(file) FROM (SELECT '{path}' AS x)",
        "SELECT * APPLY file FROM (SELECT '{path}' AS x)", "SELECT arrayMap(file, ['{path}'])",
        "SELECT arrayMap(x -> file(x), ['{path}'])", "WITH (x -> file(x)) AS f SELECT f('{path}')",
        "SELECT * FROM file('{path}', 'LineAsString')", "SELECT * FROM '{path}'", 'SELECT * FROM "{path}"',
        'SELECT * FROM default."{path}"', "SELECT * FROM `{path}`", "DESCRIBE TABLE file('{path}', 'LineAsString')",
        "EXPLAIN SELECT file('{path}')", "SELECT * FROM fileCluster('default', '{path}', 'LineAsString')",
        "SELECT * FROM sqlite('{path}', 'x')", "SELECT * FROM executable('cat', 'LineAsString', 'x String')",
    ],
)  # fmt: skip
def test_the_reader_sees_no_file_of_the_machine(reader: Client, secret: str, sql: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query(sql.replace("{path}", secret))

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 INTO OUTFILE '{path}'", "SELECT 1 INTO OUTFILE '{path}' APPEND AND STDOUT FORMAT CSV",
        "INSERT INTO FUNCTION file('{path}', 'CSV') SELECT 1",
    ],
)  # fmt: skip
def test_the_reader_writes_no_file(reader: Client, tmp_path: Path, sql: str) -> None:
    with pytest.raises(DatabaseError):
        reader.raw_query(sql.replace("{path}", str(tmp_path / "out")))

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "function",
    [
        "url('http://127.0.0.1:1/', 'LineAsString')", "remote('127.0.0.1:1', system.one)",
        "mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')", "postgresql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
        "hdfs('hdfs://127.0.0.1:1/a', 'CSV', 'a Int8')", "odbc('a', 'b')",
    ],
)  # fmt: skip
def test_the_reader_reaches_no_other_host(reader: Client, function: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query(f"SELECT * FROM {function}")

    assert refused.value.code == ACCESS_DENIED


@pytest.mark.parametrize("user", ["default", "rootrank_reader"])
@pytest.mark.parametrize(
    ("sql", "parameters"),
    [("SELECT arrayMap({f:Identifier}, ['{path}'])", {"f": "file"}),
     ("SELECT 1 FORMAT Template SETTINGS format_template_resultset = '{path}'", {}),
     ("SELECT 1 AS x FORMAT Protobuf SETTINGS format_schema = '{path}:X'", {})],
)  # fmt: skip
def test_no_parameter_or_format_shows_a_file(
    clickhouse_server: ClickHouseServer, secret: str, user: str, sql: str, parameters: dict[str, str]
) -> None:
    with (
        clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_server.port, username=user) as client,
        pytest.raises(DatabaseError) as refused,
    ):
        client.raw_query(sql.replace("{path}", secret), parameters=parameters)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM system.processes", "SHOW PROCESSLIST", "SELECT * FROM merge('system', '^proc')",
        "SELECT * FROM `system`.`proc\\x65sses`", "SELECT * FROM view(SELECT * FROM system.processes)",
        "SELECT name FROM system.users", "SHOW CREATE USER default", "SELECT * FROM system.grants",
    ],
)  # fmt: skip
def test_the_reader_sees_nothing_of_others(reader: Client, sql: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query(sql)

    assert refused.value.code == ACCESS_DENIED


@pytest.mark.parametrize("setting", ["max_execution_time", "max_memory_usage", "max_result_rows"])
@pytest.mark.parametrize("value", [0, 10**12])
@pytest.mark.parametrize("profile", ["", ", profile = 'default'"])
def test_the_reader_chooses_its_limits_within_bounds(reader: Client, setting: str, value: int, profile: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query(f"SELECT 1 SETTINGS {setting} = {value}{profile}")

    assert refused.value.code == CONSTRAINT_VIOLATION
    assert reader.raw_query("SELECT getSetting('max_execution_time'), getSetting('max_result_rows')") == LIMITS
    assert reader.raw_query("SELECT 1 SETTINGS max_execution_time = 5, max_result_rows = 5") == b"1\n"


def test_a_result_of_too_many_rows_is_an_error_and_not_a_part_of_it(reader: Client) -> None:
    with pytest.raises(DatabaseError) as refused:
        reader.raw_query("SELECT number FROM numbers(1000) SETTINGS max_result_rows = 100")

    assert refused.value.code == TOO_MANY_ROWS


def test_the_settings_of_a_request_cannot_lift_the_limit(clickhouse_server: ClickHouseServer) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", clickhouse_server.port)) as connection:
        connection.request("POST", "/?user=rootrank_reader&readonly=0", b"SELECT 1")

        assert connection.getresponse().headers["X-ClickHouse-Exception-Code"] == str(READONLY)
