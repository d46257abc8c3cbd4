"""What sql/roles.sql gives the read-only user, by the rights, bounds and quota that the real engine makes of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.store.sqlfiles import ROOT

pytestmark = pytest.mark.clickhouse

ROLES = (ROOT / "roles.sql").read_text(encoding="utf-8")
DENIED, READONLY, BOUNDS, TOO_MANY = (
    "ACCESS_DENIED", "READONLY", "SETTING_CONSTRAINT_VIOLATION", "TOO_MANY_ROWS_OR_BYTES",
)  # fmt: skip

ALLOWED = {
    "SELECT count() FROM rootrank.t": "1000",
    "SELECT getSetting('readonly'), getSetting('max_execution_time')": "2\t60",
    "SELECT 1 SETTINGS max_execution_time = 600": "1",
    "SHOW TABLES FROM rootrank": "t",
    "SELECT sum(rows) FROM system.parts WHERE database = 'rootrank'": "1000",
}
REFUSED = {
    "INSERT INTO rootrank.t SELECT 1": DENIED,
    "DROP TABLE rootrank.t": DENIED,
    "ALTER TABLE rootrank.t DELETE WHERE 1": DENIED,
    "CREATE TABLE rootrank.u (x Int8) ENGINE = Memory": DENIED,
    "CREATE VIEW rootrank.v AS SELECT 1": DENIED,
    "SYSTEM FLUSH LOGS": DENIED,
    "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString', 'x String')": DENIED,
    "SELECT * FROM file('/etc/hostname', 'LineAsString', 'x String')": DENIED,
    "SELECT * FROM remote('127.0.0.1:1', 'rootrank', 't')": DENIED,
    "SELECT * FROM s3('http://127.0.0.1:1/bucket/x', 'CSV', 'x String')": DENIED,
    "SELECT name FROM system.users": DENIED,
    "SET readonly = 0": READONLY,
    "SELECT 1 SETTINGS readonly = 0": READONLY,
    "SELECT 1 SETTINGS max_execution_time = 601": BOUNDS,
    "SELECT 1 SETTINGS max_execution_time = 0": BOUNDS,
    "SELECT 1 SETTINGS max_memory_usage = 16000000001": BOUNDS,
    "SELECT 1 SETTINGS max_result_rows = 1000001": BOUNDS,
    "SELECT 1 SETTINGS allow_ddl = 1": "QUERY_IS_PROHIBITED",
    "SELECT x FROM rootrank.t SETTINGS max_result_rows = 10": TOO_MANY,
}


def asked(folder: Path, statements: list[str], sql: str = ROLES) -> list[str]:
    """What the reader is answered."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.roles_process", str(folder), json.dumps(statements)],
        input=sql, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    answers: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_the_reader_of_the_file_reads_and_does_nothing_else(tmp_path: Path) -> None:
    expected = {**ALLOWED, **REFUSED}

    assert dict(zip(expected, asked(tmp_path, list(expected)), strict=True)) == expected


def test_the_bounds_of_the_embedded_reader_are_those_of_the_file() -> None:
    users = (ROOT.parent / "pipeline" / "embedded" / "clickhouse_users.xml").read_text(encoding="utf-8")
    reader = users.partition("<reader>")[2].partition("</reader>")[0]
    for name in ("max_execution_time", "max_memory_usage", "max_result_rows"):
        least = reader.partition(f"<{name}><min>")[2].partition("<")[0]
        most = reader.partition(f"<{name}>")[2].partition("<max>")[2].partition("<")[0]
        assert f"MIN {least} MAX {most}" in ROLES.partition(f"{name} = ")[2].partition("\n")[0]


def test_who_reads_more_than_the_quota_is_refused(tmp_path: Path) -> None:
    (tmp_path / "narrow").mkdir()
    narrow = ROLES.replace("read_rows = 1000000000000", "read_rows = 2500")
    assert narrow != ROLES
    thrice = ["SELECT sum(x) FROM rootrank.t"] * 3

    assert asked(tmp_path / "narrow", thrice, narrow) == ["499500", "499500", "QUOTA_EXCEEDED"]
    assert asked(tmp_path, thrice) == ["499500"] * 3
