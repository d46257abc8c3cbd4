"""Users, passwords, and what is refused before the engine sees it."""

from base64 import b64encode
from email.message import Message
from pathlib import Path

import pytest

from pipeline.embedded.clickhouse.access import (
    Credentials,
    authenticate,
    credentials_of,
    read_passwords,
    require_inside,
    require_reading,
)
from pipeline.embedded.clickhouse.problems import StatementError, from_engine


def headers(**values: str) -> Message:
    message = Message()
    for name, value in values.items():
        message[name.replace("_", "-")] = value
    return message


def basic(text: str) -> Message:
    return headers(Authorization="Basic " + b64encode(text.encode()).decode())


def test_credentials_come_from_basic_authentication_headers_or_the_url() -> None:
    expected = Credentials(user="rootrank_reader", password="p:w")

    assert credentials_of(basic("rootrank_reader:p:w"), {}) == expected
    assert credentials_of(headers(X_ClickHouse_User="rootrank_reader", X_ClickHouse_Key="p:w"), {}) == expected
    assert credentials_of(headers(), {"user": "rootrank_reader", "password": "p:w"}) == expected
    assert credentials_of(headers(), {}) == Credentials(user="default", password="")


@pytest.mark.parametrize(("user", "password"), [("default", "wrong"), ("root", ""), ("", "")])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(user: str, password: str) -> None:
    with pytest.raises(StatementError) as refused:
        authenticate(Credentials(user=user, password=password), {"default": "right", "rootrank_reader": ""})

    assert (refused.value.code, refused.value.status) == (516, 403)


def test_unreadable_basic_authentication_is_refused() -> None:
    with pytest.raises(StatementError) as refused:
        credentials_of(headers(Authorization="Basic ***"), {})

    assert refused.value.code == 516


def test_passwords_are_read_from_lines(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("rootrank_reader:a:b\n\n")

    assert read_passwords(tmp_path / "passwords") == {"default": "", "rootrank_reader": "a:b"}
    assert read_passwords(None) == {"default": "", "rootrank_reader": ""}


@pytest.mark.parametrize("line", ["admin:x", "default"])
def test_a_malformed_password_line_is_an_error_with_its_address(tmp_path: Path, line: str) -> None:
    (tmp_path / "passwords").write_text(f"\n{line}\n")

    with pytest.raises(ValueError, match="passwords:2: expected"):
        read_passwords(tmp_path / "passwords")


@pytest.mark.parametrize(
    "canonical",
    [
        "SELECT file FROM t", "SELECT t.file, 'file(' FROM t", "SELECT concat(t.file, x) FROM t", "SHOW TABLES",
        "WITH 1 AS x SELECT x", "DESCRIBE TABLE t", "EXPLAIN SELECT 1", "EXISTS TABLE t", "SELECT outfile FROM t",
    ],
)  # fmt: skip
def test_reading_is_allowed(canonical: str) -> None:
    require_reading(canonical, {"name": "processes"})
    require_inside(canonical, {"name": "file"})


@pytest.mark.parametrize(
    "canonical",
    [
        "INSERT INTO t FORMAT Values", "DROP TABLE t", "SYSTEM FLUSH LOGS", "SET readonly = 0", "SET ROLE writer",
        "USE system", "KILL QUERY WHERE 1 ASYNC", "CREATE TEMPORARY TABLE t (`x` Int8)", "",
    ],
)  # fmt: skip
def test_writing_is_refused_to_the_reader(canonical: str) -> None:
    with pytest.raises(StatementError) as refused:
        require_reading(canonical, {})

    assert refused.value.code == 164
    assert refused.value.text.endswith("(READONLY)")


@pytest.mark.parametrize(
    "canonical",
    [
        "SELECT * FROM system.processes", "SELECT * FROM `system`.`PROCESSES`", "SHOW PROCESSLIST",
        "SELECT count() FROM merge('system', '^proc')", "SELECT * FROM {t:Identifier}", "SELECT * FROM query_cache",
    ],
)  # fmt: skip
def test_the_reader_does_not_see_what_others_ask(canonical: str) -> None:
    with pytest.raises(StatementError) as refused:
        require_reading(canonical, {"t": "system.`processes`"})

    assert refused.value.code == 497


@pytest.mark.parametrize(
    "canonical",
    [
        "SELECT file('/x')", "SELECT `file`('/x')", "SELECT * APPLY file FROM t", "SELECT * APPLY x -> file(x) FROM t",
        "SELECT arrayMap(file, ['/x'])", "SELECT 1 INTO OUTFILE 'x' FORMAT JSON", "SELECT * FROM Python(x)",
        "INSERT INTO t FROM INFILE '/x' FORMAT CSV", "INSERT INTO t FROM INFILE 'own' FROM INFILE '/x' FORMAT CSV",
        "SELECT arrayMap({name:Identifier}, ['/x'])", "CREATE TABLE t (`x` Int8) ENGINE = EmbeddedRocksDB(0, '/x')",
        "CREATE TABLE t (`x` Int8) ENGINE = MergeTree SETTINGS disk = disk(type = 'web', endpoint = 'http://x')",
    ],
)  # fmt: skip
def test_nobody_reaches_outside_the_tables(canonical: str) -> None:
    with pytest.raises(StatementError) as refused:
        require_inside(canonical, {"name": " FILE"}, own_infile="own")

    assert (refused.value.code, refused.value.status) == (497, 403)


def test_the_adapters_own_file_of_rows_may_be_read() -> None:
    require_inside("INSERT INTO t FROM INFILE 'own' COMPRESSION 'none' FORMAT Native", {}, own_infile="own")


def test_the_code_of_an_engine_error_is_taken_from_its_text() -> None:
    problem = from_engine(RuntimeError("Streaming query failed: Code: 60. DB::Exception: no table. (UNKNOWN_TABLE)"))

    assert (problem.code, problem.status) == (60, 404)
    assert problem.text.startswith("Code: 60.")
    assert from_engine(RuntimeError("no code at all")).code == 1002
