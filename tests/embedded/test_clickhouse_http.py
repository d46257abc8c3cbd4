"""The interface as curl, Grafana and a hostile web page see it."""

import gzip
import http.client
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer

pytestmark = pytest.mark.clickhouse


class Curl:
    """Requests by hand, on one kept connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        return self.send("GET", path, None, **headers)

    def post(self, path: str, body: bytes | str, **headers: str) -> tuple[int, str]:
        return self.send("POST", path, body.encode() if isinstance(body, str) else body, **headers)

    def send(self, method: str, path: str, body: bytes | None, **headers: str) -> tuple[int, str]:
        self.connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        self.answer = self.connection.getresponse()
        self.raw = self.answer.read()
        return self.answer.status, self.raw.decode("utf-8", errors="replace")


@pytest.fixture
def curl(clickhouse_server: ClickHouseServer) -> Iterator[Curl]:
    client = Curl(clickhouse_server.port)
    yield client
    client.connection.close()


@pytest.fixture
def table(curl: Curl) -> Iterator[str]:
    """An empty table (id UInt64, text String)."""
    name = f"t{uuid.uuid4().hex}"
    assert curl.post("/", f"CREATE TABLE {name} (id UInt64, text String) ENGINE = MergeTree ORDER BY id")[0] == 200
    yield name
    curl.post("/", f"DROP TABLE {name}")


def test_ping_and_the_bare_address_say_ok(curl: Curl) -> None:
    assert curl.get("/ping") == (200, "Ok.\n")
    assert curl.get("/") == (200, "Ok.\n")
    assert curl.send("HEAD", "/ping", None) == (200, "")
    assert curl.get("/play")[0] == 404


def test_a_query_in_the_url_or_in_the_body_or_in_both(curl: Curl) -> None:
    assert curl.get("/?query=SELECT%201") == (200, "1\n")
    assert curl.post("/", "SELECT 2") == (200, "2\n")
    assert curl.post("/?query=SELECT", "3") == (200, "3\n")


def test_format_comes_from_the_query_the_url_or_the_header(curl: Curl) -> None:
    rows = {"data": [{"x": 1}], "rows": 1}

    def is_json(answer: tuple[int, str]) -> bool:
        return answer[0] == 200 and rows.items() <= json.loads(answer[1]).items()

    assert is_json(curl.get("/?query=" + quote("SELECT 1 AS x FORMAT JSON")))
    assert curl.answer.headers["Content-Type"] == "application/json; charset=UTF-8"
    assert is_json(curl.get("/?default_format=JSON&query=" + quote("SELECT 1 AS x")))
    assert is_json(curl.get("/?query=" + quote("SELECT 1 AS x"), X_ClickHouse_Format="JSON"))


def test_headers_name_the_query_the_zone_and_the_counts(curl: Curl) -> None:
    curl.get("/?query_id=mine&query=" + quote("SELECT 1 FORMAT JSON"))

    assert curl.answer.headers["X-ClickHouse-Query-Id"] == "mine"
    assert curl.answer.headers["X-ClickHouse-Timezone"] == "UTC"
    assert json.loads(curl.answer.headers["X-ClickHouse-Summary"])["result_rows"] == "1"


def test_parameters_settings_and_database_come_from_the_url(curl: Curl) -> None:
    sql = "SELECT {text:String}, getSetting('max_threads'), currentDatabase()"
    url = urlencode({"query": sql, "param_text": "a'b", "max_threads": "3", "database": "system"})

    assert curl.get(f"/?{url}") == (200, "a\\'b\t3\tsystem\n")


def test_settings_of_one_request_do_not_reach_the_next(curl: Curl) -> None:
    before = curl.post("/", "SELECT getSetting('max_block_size')")
    curl.post("/?max_block_size=17", "SELECT 1")

    assert curl.post("/", "SELECT getSetting('max_block_size')") == before


def test_an_unknown_setting_is_an_error(curl: Curl) -> None:
    assert curl.get("/?nonsense=1&query=SELECT%201")[0] == 404
    assert curl.answer.headers["X-ClickHouse-Exception-Code"] == "115"


def test_get_does_not_write(curl: Curl, table: str) -> None:
    for sql in (f"INSERT INTO {table} VALUES (1, 'a')", f"DROP TABLE {table}", f"TRUNCATE TABLE {table}"):
        curl.get("/?query=" + quote(sql))
        assert curl.answer.headers["X-ClickHouse-Exception-Code"] == "164"


@pytest.mark.parametrize("in_url", [True, False])
def test_rows_in_the_body_are_inserted(curl: Curl, table: str, in_url: bool) -> None:
    statement = f"INSERT INTO {table} FORMAT JSONEachRow"
    row = json.dumps({"id": 1, "text": "FORMAT Values ; -- é"})
    path, body = (f"/?query={quote(statement)}", row) if in_url else ("/", f"{statement}\n{row}")

    assert curl.post(path, body) == (200, "")
    assert json.loads(curl.answer.headers["X-ClickHouse-Summary"])["written_rows"] == "1"
    assert curl.post("/", f"SELECT text FROM {table}") == (200, "FORMAT Values ; -- é\n")


def test_settings_inside_an_insert_are_kept(curl: Curl, table: str) -> None:
    row = '{"id": 1, "unknown": 2}'
    statement = f"INSERT INTO {table} SETTINGS input_format_skip_unknown_fields = {{}} FORMAT JSONEachRow"

    assert curl.post("/", f"{statement.format(0)}\n{row}")[0] == 400
    assert curl.post("/", f"{statement.format(1)}\n{row}")[0] == 200


def test_a_large_body_with_its_statement_inside_is_inserted(curl: Curl, table: str) -> None:
    body = f"INSERT INTO {table} VALUES " + ",".join(f"({number},'{'x' * 50}')" for number in range(200_000))
    assert len(body) > 10_000_000

    assert curl.post("/", body)[0] == 200
    assert curl.post("/", f"SELECT count(), sum(id) FROM {table}") == (200, f"200000\t{sum(range(200_000))}\n")


def test_a_body_in_several_gzip_members_is_read_whole(curl: Curl, table: str) -> None:
    body = gzip.compress(b"1\ta\n") + gzip.compress(b"2\tb\n")

    assert curl.post(f"/?query=INSERT+INTO+{table}+FORMAT+TSV", body, Content_Encoding="gzip")[0] == 200
    assert curl.post("/", f"SELECT count() FROM {table}") == (200, "2\n")


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(gzip.compress(b"1\ta\n")[:-6], "gzip", id="cut gzip"),
        (b"not gzip", "gzip"),
        (b"x", "zstd"),
        (b"x", "lz4"),
        (b"x", "br"),
    ],
)
def test_a_corrupt_or_unknown_encoding_is_refused_and_nothing_is_kept(
    curl: Curl, table: str, body: bytes, encoding: str
) -> None:
    status, text = curl.post(f"/?query=INSERT+INTO+{table}+FORMAT+TSV", body, Content_Encoding=encoding)

    assert status in {400, 501}
    assert "DB::Exception" in text
    assert curl.post("/", f"SELECT count() FROM {table}") == (200, "0\n")


def test_a_body_cut_off_by_a_dead_client_is_not_inserted(
    clickhouse_server: ClickHouseServer, curl: Curl, table: str
) -> None:
    dying = Curl(clickhouse_server.port).connection
    dying.putrequest("POST", f"/?query=INSERT+INTO+{table}+FORMAT+TSV")
    dying.putheader("Transfer-Encoding", "chunked")
    dying.endheaders(b"4\r\n1\ta\n\r\n")
    assert dying.sock is not None
    dying.sock.shutdown(1)
    answer = dying.getresponse()
    answer.read()
    dying.close()

    assert answer.headers["X-ClickHouse-Exception-Code"] == "117"
    assert curl.post("/", f"SELECT count() FROM {table}") == (200, "0\n")


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "lz4"])
def test_responses_are_compressed_when_asked(curl: Curl, encoding: str) -> None:
    sql = "SELECT repeat('x', 1000) FROM numbers(1000)"

    curl.post("/?enable_http_compression=1", sql, Accept_Encoding=encoding)
    assert curl.answer.headers["Content-Encoding"] == encoding
    assert len(curl.raw) < 100_000
    curl.post("/", sql, Accept_Encoding=encoding)
    assert curl.answer.headers["Content-Encoding"] is None
    assert len(curl.raw) == 1_001_000


def test_connections_are_kept_after_errors(curl: Curl) -> None:
    curl.post("/", "SELEC")
    first = curl.connection.sock
    assert first is not None

    assert curl.post("/", "SELECT 1") == (200, "1\n")
    assert curl.connection.sock is first


def test_a_foreign_web_page_is_refused(curl: Curl) -> None:
    assert curl.post("/", "SELECT 1", Origin="https://attacker.example")[0] != 200
    assert curl.post("/", "SELECT 1", Host="attacker.example:8123")[0] != 200
    assert curl.post("/", "SELECT 1", Host="localhost:1", Origin="http://localhost:1") == (200, "1\n")


def test_passwords_of_a_file_are_required(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("default:secret\nrootrank_reader:open\n")
    server = ClickHouseServer(tmp_path, passwords=passwords)
    server.start()
    try:
        curl = Curl(server.port)
        assert curl.get("/ping") == (200, "Ok.\n")
        assert curl.post("/", "SELECT 1")[0] == 403
        assert curl.answer.headers["X-ClickHouse-Exception-Code"] == "516"
        assert curl.post("/?user=rootrank_reader&password=open", "SELECT 1") == (200, "1\n")
        assert curl.post("/", "SELECT 1", X_ClickHouse_User="default", X_ClickHouse_Key="secret") == (200, "1\n")
        curl.connection.close()
    finally:
        server.stop()
