"""Migrations: once, in order, and never behind anybody's back."""

import threading
from pathlib import Path

import pytest

from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.errors import MigrationChangedError, MigrationError, StoreUnreachableError
from pipeline.store.settings import settings_from_url
from pipeline.store.sqlfiles import ROOT, split_statements, statement

pytestmark = pytest.mark.clickhouse


@pytest.fixture
def store(empty_store: Store) -> Store:
    """A migrated database of the test's own: it may take tables away."""
    migrations.apply(empty_store, migrations.load_migrations())
    return empty_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text(
        "-- one; two\nCREATE TABLE IF NOT EXISTS a (x UInt8) ENGINE = MergeTree ORDER BY x;\n"
        "CREATE VIEW IF NOT EXISTS va AS SELECT x FROM a WHERE toString(x) != ';\\n';\n"
    )
    (tmp_path / "0001_first.down.sql").write_text("DROP VIEW va;\nDROP TABLE a;\n")
    (tmp_path / "0002_second.sql").write_text("ALTER TABLE a ADD COLUMN IF NOT EXISTS y UInt8;\n")
    return tmp_path


def states(store: Store, folder: Path) -> list[tuple[int, str, str]]:
    found = migrations.status(store, migrations.load_migrations(folder))
    return [(state.number, state.name, state.state) for state in found]


def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line() -> None:
    text = "-- a; b;\nSELECT ';',\n 1;\n\n-- only a comment;\nSELECT 2;  \n-- end\n"
    assert split_statements(text) == ["-- a; b;\nSELECT ';',\n 1", "-- only a comment;\nSELECT 2"]


def test_all_migrations_apply_once_and_a_second_time_does_nothing(empty_store: Store) -> None:
    files = migrations.load_migrations()
    assert migrations.apply(empty_store, files) == files
    assert migrations.apply(empty_store, files) == []
    assert {state.state for state in migrations.status(empty_store, files)} == {"applied"}


def test_every_statement_may_run_again(store: Store) -> None:
    for migration in migrations.load_migrations():
        for sql in split_statements(migration.text):
            store.command(sql)


def test_down_files_take_everything_away(store: Store) -> None:
    for migration in reversed(migrations.load_migrations()):
        down = migration.path.with_name(migration.path.name.replace(".sql", ".down.sql"))
        for sql in split_statements(down.read_text()):
            store.command(sql)
    left = store.rows("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert [tuple(row) for row in left] == [("schema_migrations",)]


def test_status_and_pending_change_nothing_and_need_no_database(empty_store: Store, folder: Path) -> None:
    files = migrations.load_migrations(folder)
    assert states(empty_store, folder) == [(1, "first", "pending"), (2, "second", "pending")]
    assert migrations.pending(empty_store, files) == files
    names = empty_store.rows("SELECT name FROM system.databases", database="")
    assert empty_store.settings.database not in {row[0] for row in names}


def test_a_new_file_is_applied_alone(empty_store: Store, folder: Path) -> None:
    migrations.apply(empty_store, migrations.load_migrations(folder))
    (folder / "0003_third.sql").write_text("ALTER TABLE a ADD COLUMN IF NOT EXISTS z UInt8;\n")
    assert states(empty_store, folder)[2] == (3, "third", "pending")
    applied = migrations.apply(empty_store, migrations.load_migrations(folder))
    assert [m.name for m in applied] == ["third"]


def test_an_applied_file_that_changed_is_named_and_nothing_is_done(empty_store: Store, folder: Path) -> None:
    migrations.apply(empty_store, migrations.load_migrations(folder))
    (folder / "0001_first.sql").write_text("SELECT 1;\n")
    (folder / "0003_third.sql").write_text("ALTER TABLE a ADD COLUMN z UInt8;\n")
    assert states(empty_store, folder)[0] == (1, "first", "changed")
    with pytest.raises(MigrationChangedError, match=r"0001_first\.sql differs"):
        migrations.apply(empty_store, migrations.load_migrations(folder))
    assert states(empty_store, folder)[2] == (3, "third", "pending")


def test_a_file_that_is_gone_is_missing(empty_store: Store, folder: Path) -> None:
    migrations.apply(empty_store, migrations.load_migrations(folder))
    (folder / "0002_second.sql").unlink()
    assert states(empty_store, folder) == [(1, "first", "applied"), (2, "second", "missing")]


@pytest.mark.parametrize("name", ["first.sql", "1.sql", "0001_other.sql"])
def test_a_name_without_number_or_with_a_taken_one_is_an_error(folder: Path, name: str) -> None:
    (folder / name).write_text("SELECT 1;\n")
    with pytest.raises(MigrationError, match=name):
        migrations.load_migrations(folder)


def test_a_migration_that_failed_in_the_middle_is_pending_and_runs_again(empty_store: Store, folder: Path) -> None:
    good = (folder / "0002_second.sql").read_text()
    (folder / "0002_second.sql").write_text(good + "SELECT nonsense;\n")
    with pytest.raises(Exception, match="nonsense"):
        migrations.apply(empty_store, migrations.load_migrations(folder))
    (folder / "0002_second.sql").write_text(good)
    assert [m.number for m in migrations.apply(empty_store, migrations.load_migrations(folder))] == [2]


def test_two_runners_that_start_together_apply_each_file_once(empty_store: Store, folder: Path) -> None:
    applied: list[list[int]] = []

    def work() -> None:
        store = Store(empty_store.settings)
        applied.append([m.number for m in migrations.apply(store, migrations.load_migrations(folder))])
        store.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [[], [], [1, 2]]


def test_the_lock_of_a_killed_runner_is_taken_over(
    empty_store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_STALE_S", -1)
    empty_store.command(statement("create_database"), {"database": empty_store.settings.database}, database="")
    empty_store.command(statement("take_migration_lock"))
    assert len(migrations.apply(empty_store, migrations.load_migrations(folder))) == 2


def test_an_engine_that_does_not_answer_is_unreachable() -> None:
    store = Store(settings_from_url("http://u:secret@127.0.0.1:1/x"))
    with pytest.raises(StoreUnreachableError, match="rootrank up") as caught:
        store.ping()
    assert "secret" not in str(caught.value)


def test_the_engine_reads_every_statement_of_the_roles_file(empty_store: Store) -> None:
    # The embedded engine has no users of its own to create; its parser is the server's.
    statements = split_statements((ROOT / "roles.sql").read_text())
    assert len(statements) == 10
    for sql in statements:
        empty_store.rows("SELECT formatQuery({sql:String})", {"sql": sql}, database="")
