"""The real engine: lifecycle, and clickhouse-connect as it comes."""

import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.errors import FolderHeldError, PartFailedError, PortTakenError
from pipeline.embedded.processes import is_running, read_pid_file

pytestmark = pytest.mark.clickhouse

Wait = Callable[[Callable[[], bool], str], None]
NANOSECONDS = 1_700_000_000_123_456_789
RUN_AN_ENGINE = """
import sys, pathlib
from pipeline.embedded.clickhouse import ClickHouseServer
print(ClickHouseServer(pathlib.Path(sys.argv[1])).start(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def database(clickhouse_server: ClickHouseServer) -> Iterator[Client]:
    """A client in a database of its own."""
    name = f"t{uuid.uuid4().hex}"
    with clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_server.port) as client:
        client.command(f"CREATE DATABASE {name}")
        client.database = name
        yield client
        client.command(f"DROP DATABASE {name}")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ClickHouseServer]:
    """An engine of its own, because the test stops or kills it."""
    own = ClickHouseServer(tmp_path)
    yield own
    own.stop()


def ask(server: ClickHouseServer, sql: str) -> str:
    with clickhouse_connect.get_client(host="127.0.0.1", port=server.port) as client:
        return client.raw_query(sql).decode()


def tell(server: ClickHouseServer, *statements: str) -> None:
    with clickhouse_connect.get_client(host="127.0.0.1", port=server.port) as client:
        for statement in statements:
            client.command(statement)


def test_rows_of_all_the_types_we_use_come_back_as_sent(database: Client) -> None:
    database.command(
        "CREATE TABLE t (id UInt64, names Array(String), attributes Map(LowCardinality(String), String),"
        " at DateTime64(9, 'UTC'), pid Nullable(Int32), node LowCardinality(String)) ENGINE = MergeTree ORDER BY id"
    )
    rows = [
        [1, ["a", "it's"], {"k": "v"}, NANOSECONDS, None, "node-a"],
        [2, [], {}, NANOSECONDS + 1, 7, "ü\t\\"],
    ]

    summary = database.insert("t", rows)

    result = database.query("SELECT * REPLACE (toUnixTimestamp64Nano(at) AS at) FROM t ORDER BY id")
    assert [list(row) for row in result.result_rows] == rows
    assert summary.written_rows == 2


def test_parameters_and_settings_reach_the_statement(database: Client) -> None:
    result = database.query(
        "SELECT {names:Array(String)}, {text:String}, getSetting('max_threads')",
        parameters={"names": ["a'b", "\t\\"], "text": "x'\n\\"},
        settings={"max_threads": 1},
    )

    assert result.first_row == (["a'b", "\t\\"], "x'\n\\", 1)


def test_long_parameters_travel_as_a_form(database: Client) -> None:
    names = [f"name-{number}" for number in range(5000)]

    assert database.query("SELECT {names:Array(String)}", parameters={"names": names}).first_row == (names,)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", False])
def test_many_blocks_arrive_whole_with_every_compression(
    database: Client, clickhouse_server: ClickHouseServer, compression: str | bool
) -> None:
    database.command("CREATE TABLE t (id UInt64, text String) ENGINE = MergeTree ORDER BY id")
    with clickhouse_connect.get_client(
        host="127.0.0.1", port=clickhouse_server.port, database=str(database.database), compress=compression
    ) as client:
        client.insert("t", [[number, f"row {number}"] for number in range(150_000)])

        assert client.query("SELECT count(), uniqExact(id) FROM t").first_row == (150_000, 150_000)
        assert sum(row[0] for row in client.query("SELECT id FROM t").result_rows) == sum(range(150_000))


@pytest.mark.parametrize(
    ("sql", "code"),
    [("SELECT nope", 47), ("SELECT * FROM nope", 60), ("SELEC 1", 62), ("SELECT 1; SELECT 2", 62),
     ("SELECT throwIf(number = 3000000) FROM numbers(4000000)", 395)],
)  # fmt: skip
def test_errors_carry_the_code_of_clickhouse_early_and_late(database: Client, sql: str, code: int) -> None:
    with pytest.raises(ClickHouseError, match=f"Code: {code}\\."):
        _ = database.query(sql).result_rows


def test_malformed_rows_are_refused_and_nothing_of_them_is_kept(database: Client) -> None:
    database.command("CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id")

    with pytest.raises(DatabaseError, match="Code: 27"):
        database.raw_insert("t", insert_block="1\n2\nthree\n", fmt="TSV")

    assert database.query("SELECT count() FROM t").first_row == (0,)


def test_a_statement_that_takes_too_long_is_ended(database: Client) -> None:
    with pytest.raises(DatabaseError, match="Code: 159"):
        database.query("SELECT max(number) FROM numbers(1000000000000)", settings={"max_execution_time": 1})


def test_rows_survive_a_kill_and_the_port_stays(engine: ClickHouseServer) -> None:
    before = engine.start()
    tell(engine, "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id", "INSERT INTO t VALUES (1), (2)")

    engine.kill()
    assert not engine.running
    after = engine.start()

    assert after == before
    assert ask(engine, "SELECT count() FROM t") == "2\n"


def test_rows_survive_a_clean_stop_and_a_new_object_finds_the_port_again(
    engine: ClickHouseServer, tmp_path: Path
) -> None:
    engine.start()
    tell(engine, "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id", "INSERT INTO t VALUES (1)")
    engine.stop()

    again = ClickHouseServer(tmp_path)
    try:
        assert again.start() == engine.url
        assert ask(again, "SELECT count() FROM t") == "1\n"
    finally:
        again.stop()


def test_a_second_engine_on_the_folder_is_refused(engine: ClickHouseServer, tmp_path: Path) -> None:
    engine.start()

    with pytest.raises(FolderHeldError, match="stop that one first"):
        ClickHouseServer(tmp_path).start()
    assert engine.running


def test_a_second_engine_process_on_the_folder_names_the_first(engine: ClickHouseServer, tmp_path: Path) -> None:
    engine.start()
    folder = tmp_path / "clickhouse"
    second = subprocess.run(
        [sys.executable, "-m", "pipeline.embedded.clickhouse", "--data", str(folder), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert second.returncode == 3
    assert f"process {engine.pid}" in second.stderr


def test_a_taken_port_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(PortTakenError):
        ClickHouseServer(tmp_path, port=server.getsockname()[1]).start()


def test_a_damaged_store_is_reported_with_its_reason(engine: ClickHouseServer, tmp_path: Path) -> None:
    (tmp_path / "clickhouse").mkdir()
    (tmp_path / "clickhouse" / "store").write_text("a file where a folder must be")

    with pytest.raises(PartFailedError, match="cannot start"):
        engine.start()


def test_a_killed_owner_leaves_no_engine_and_the_next_start_works(
    engine: ClickHouseServer, tmp_path: Path, eventually: Wait
) -> None:
    command = [sys.executable, "-c", RUN_AN_ENGINE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        record = read_pid_file(tmp_path / "clickhouse" / "engine.pid")
        assert record is not None

        owner.send_signal(signal.SIGKILL)

    eventually(lambda: not is_running(record.part), "the engine outlived its owner")
    assert engine.start() == url


def test_an_address_is_known_only_after_the_start(tmp_path: Path) -> None:
    with pytest.raises(PartFailedError, match="not started"):
        _ = ClickHouseServer(tmp_path).url


def test_a_folder_with_spaces_and_umlauts_works(tmp_path: Path) -> None:
    server = ClickHouseServer(tmp_path / "my dätä %41 <x>")
    server.start()
    try:
        tell(server, "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id", "INSERT INTO t VALUES (1)")

        assert ask(server, "SELECT count() FROM t") == "1\n"
        assert (tmp_path / "my dätä %41 <x>" / "clickhouse" / "store").is_dir()
    finally:
        server.stop()


def test_a_folder_the_engine_cannot_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartFailedError, match="choose another data folder"):
        ClickHouseServer(tmp_path / "a?b").start()


def test_settings_reach_an_insert(database: Client) -> None:
    database.command("CREATE TABLE t (day UInt32) ENGINE = MergeTree PARTITION BY day ORDER BY day")
    rows = [[day] for day in range(150)]

    with pytest.raises(DatabaseError, match="Code: 252"):
        database.insert("t", rows)
    database.insert("t", rows, settings={"max_partitions_per_insert_block": 0})

    assert database.query("SELECT count() FROM t").first_row == (150,)
