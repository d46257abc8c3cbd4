"""`default` writes tables, and has none of the rights that the process has on the machine."""

import http.client
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from pipeline.embedded.clickhouse import ClickHouseServer

pytestmark = pytest.mark.clickhouse

SECRET = "the content of a file of this machine"


@pytest.fixture
def writer(clickhouse_server: ClickHouseServer) -> Iterator[Client]:
    """The writer in a database with one table `t` of texts."""
    name = f"t{uuid.uuid4().hex}"
    with clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_server.port) as client:
        client.command(f"CREATE DATABASE {name}")
        client.database = name
        client.command("CREATE TABLE t (x String) ENGINE = MergeTree ORDER BY x")
        yield client
        client.command(f"DROP DATABASE {name}")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return str(path)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM file('{path}', 'LineAsString')", "SELECT file('{path}')", "SELECT * FROM default.`{path}`",
        "INSERT INTO t SELECT file('{path}')", "INSERT INTO t SELECT * FROM file('{path}', 'LineAsString')",
        "INSERT INTO t VALUES (file('{path}'))", "INSERT INTO t VALUES (`fil\\x65`('{path}'))",
        "INSERT INTO t SETTINGS input_format_values_interpret_expressions = 1 VALUES (file('{path}'))",
        "INSERT INTO t FROM INFILE '{path}' FORMAT LineAsString", "CREATE VIEW v AS SELECT file('{path}') AS x",
        "INSERT INTO t FROM/**/INFILE '{path}' FORMAT LineAsString",
        "CREATE TABLE f (x String) ENGINE = File(LineAsString, '{path}')",
        "CREATE TABLE f (x String DEFAULT file('{path}')) ENGINE = MergeTree ORDER BY x",
        "ALTER TABLE t UPDATE x = file('{path}') WHERE 1", "CREATE DATABASE f ENGINE = Filesystem('/')",
        "CREATE DICTIONARY d (x String) PRIMARY KEY x SOURCE(FILE(path '{path}' format 'CSV')) LAYOUT(DIRECT())",
        "SELECT * FROM sqlite('{path}', 'x')", "SELECT * FROM executable('cat', 'LineAsString', 'x String')",
        "RESTORE TABLE t FROM File('{path}')", "CREATE FUNCTION f AS x -> file(x)", "SELECT * FROM Python(x)",
    ],
)  # fmt: skip
def test_the_writer_sees_no_file_of_the_machine(writer: Client, secret: str, sql: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        writer.command(sql.replace("{path}", secret))

    assert SECRET not in str(refused.value)
    assert SECRET not in str(writer.query("SELECT * FROM t").result_rows)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 INTO OUTFILE '{path}'", "INSERT INTO FUNCTION file('{path}', 'CSV') SELECT 1",
        "INSERT INTO FUNCTION file('{path}', 'CSV', 'x String') VALUES ('a')", "BACKUP TABLE t TO File('{path}')",
        "INSERT INTO FUNCTION file('{path}', 'CSV', 'x String') FORMAT CSV\na",
        "BACKUP TABLE t TO Disk('default', 'b')",
        "CREATE TABLE r (x String) ENGINE = EmbeddedRocksDB(0, '{path}') PRIMARY KEY x",
        "CREATE TABLE r (x String) ENGINE = MergeTree ORDER BY x SETTINGS disk = disk(type = local, path = '{path}/')",
    ],
)  # fmt: skip
def test_the_writer_writes_no_file(writer: Client, tmp_path: Path, sql: str) -> None:
    with pytest.raises(DatabaseError):
        writer.command(sql.replace("{path}", str(tmp_path / "out")))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "function",
    ["url('http://127.0.0.1:1/', 'CSV')", "remote('127.0.0.1:1', system.one)",
     "s3('http://127.0.0.1:1/bucket/x', 'CSV')",
     "mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')"],
)  # fmt: skip
def test_the_writer_reaches_no_other_host(writer: Client, function: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        writer.raw_query(f"SELECT * FROM {function}")

    assert refused.value.code == 497


@pytest.mark.parametrize("sql", ["CREATE USER u", "GRANT READ ON FILE TO default", "SYSTEM SHUTDOWN"])
def test_the_writer_gives_itself_no_rights_and_ends_nothing(writer: Client, sql: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        writer.command(sql)

    assert refused.value.code == 497


def test_a_request_without_a_client_library_sees_no_file_either(
    clickhouse_server: ClickHouseServer, secret: str
) -> None:
    sql = f"SELECT * FROM file('{secret}', 'LineAsString')"
    with closing(http.client.HTTPConnection("127.0.0.1", clickhouse_server.port)) as connection:
        connection.request("GET", "/?query=" + quote(sql))
        answer = connection.getresponse()

        assert answer.status == 403
        assert SECRET not in answer.read().decode()


def test_texts_that_only_speak_of_files_are_written(writer: Client) -> None:
    texts = ["file('/x')", "it`s", 'a "file"', "FROM INFILE 'x'"]
    writer.command("INSERT INTO t VALUES " + ", ".join("('" + text.replace("'", "\\'") + "')" for text in texts))
    writer.insert("t", [["INTO OUTFILE"]])
    writer.command("INSERT INTO t VALUES (upper('now'))")

    assert {row[0] for row in writer.query("SELECT x FROM t").result_rows} == {*texts, "INTO OUTFILE", "NOW"}


def test_the_data_folder_is_the_users_own(clickhouse_server: ClickHouseServer, tmp_path: Path) -> None:
    folder = tmp_path / "clickhouse"
    folder.mkdir(mode=0o755)
    server = ClickHouseServer(tmp_path)
    server.start()
    try:
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()
