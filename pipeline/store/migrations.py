"""Numbered SQL files applied once, in order: `NNNN_name.sql`, with an optional `NNNN_name.down.sql`.

The statements are idempotent and the runner takes a lock, so two that start together do no harm.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pipeline.store.errors import MigrationChangedError, MigrationError, MigrationLockedError, StoreRefusedError
from pipeline.store.sqlfiles import MIGRATIONS, split_statements, statement
from pipeline.store.tables import Table

if TYPE_CHECKING:
    from pipeline.store.clickhouse import Store

log = logging.getLogger(__name__)

SCHEMA_MIGRATIONS: Final = Table(name="schema_migrations", columns=("number", "name", "checksum"))
TABLE_ALREADY_EXISTS: Final = 57
LOCK_WAIT_S: Final = 60.0
# Who holds the lock longer than this was killed: the longest migration takes seconds.
LOCK_STALE_S: Final = 120


class Migration(Struct, frozen=True, kw_only=True):
    """One file."""

    number: int
    name: str
    path: Path
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return sha256(self.text.encode()).hexdigest()


class MigrationStatus(Struct, frozen=True, kw_only=True):
    """Where one migration stands. `missing`: applied, but its file is gone (an older program on a newer database)."""

    number: int
    name: str
    state: Literal["applied", "pending", "changed", "missing"]
    applied_at: str | None = None


def load_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """The files of a folder by number. Raises MigrationError for a name without a number or a number used twice."""
    found: dict[int, Migration] = {}
    for path in sorted(folder.glob("*.sql")):
        if path.name.endswith(".down.sql"):
            continue
        number, _, name = path.stem.partition("_")
        if not number.isdigit() or not name:
            raise MigrationError(f"{path.name}: a migration is named NNNN_name.sql")
        if int(number) in found:
            raise MigrationError(f"{path.name}: number {number} is taken by {found[int(number)].path.name}")
        text = path.read_text(encoding="utf-8")
        found[int(number)] = Migration(number=int(number), name=name, path=path, text=text)
    return [found[number] for number in sorted(found)]


def status(store: "Store", migrations: list[Migration]) -> list[MigrationStatus]:
    """Each migration of the files or of the database, by number. Changes nothing."""
    applied = _applied(store)
    known = {m.number: m for m in migrations}
    return [_state(number, known.get(number), applied.get(number)) for number in sorted(applied.keys() | known.keys())]


def apply(store: "Store", migrations: list[Migration]) -> list[Migration]:
    """Apply what is pending and return it. Creates the database where it is missing.

    Raises MigrationChangedError where an applied file has changed, before anything is done, and MigrationLockedError
    where another runner does not finish within a minute.
    """
    store.command(statement("create_database"), {"database": store.settings.database}, database="")
    store.command(statement("create_schema_migrations"))
    if not pending(store, migrations):
        return []
    with _lock(store):
        todo = pending(store, migrations)
        for migration in todo:
            for sql in split_statements(migration.text):
                store.command(sql)
            store.insert(SCHEMA_MIGRATIONS, [(migration.number, migration.name, migration.checksum.encode())])
            log.info("applied migration %04d %s", migration.number, migration.name)
    return todo


def pending(store: "Store", migrations: list[Migration]) -> list[Migration]:
    """What `apply` would apply. Raises MigrationChangedError as it does."""
    states = {state.number: state for state in status(store, migrations)}
    for state in states.values():
        if state.state == "changed":
            raise MigrationChangedError(
                f"migration {state.number:04d}_{state.name}.sql differs from what was applied at {state.applied_at}. "
                f"Put the file back as it was and write the change as a new migration"
            )
    return [m for m in migrations if states[m.number].state == "pending"]


def _applied(store: "Store") -> dict[int, tuple[str, str, str]]:
    database = store.settings.database
    if not store.rows(statement("has_schema_migrations"), {"database": database}, database="")[0][0]:
        return {}
    rows = store.rows(statement("applied_migrations"))
    return {number: (name, checksum, applied_at) for number, name, checksum, applied_at in rows}


def _state(number: int, file: Migration | None, applied: tuple[str, str, str] | None) -> MigrationStatus:
    if applied is None:
        return MigrationStatus(number=number, name=file.name if file else "", state="pending")
    name, checksum, applied_at = applied
    if file is None:
        return MigrationStatus(number=number, name=name, state="missing", applied_at=applied_at)
    same = file.checksum == checksum
    return MigrationStatus(number=number, name=file.name, state="applied" if same else "changed", applied_at=applied_at)


@contextmanager
def _lock(store: "Store") -> Iterator[None]:
    _take_lock(store)
    try:
        yield
    finally:
        store.command(statement("drop_migration_lock"))


def _take_lock(store: "Store") -> None:
    pause = threading.Event()
    for _ in range(int(LOCK_WAIT_S / 0.5)):
        try:
            store.command(statement("take_migration_lock"))
        except StoreRefusedError as error:
            if error.code != TABLE_ALREADY_EXISTS:
                raise
        else:
            return
        age = store.rows(statement("age_of_migration_lock"), {"database": store.settings.database})
        if age and age[0][0] > LOCK_STALE_S:
            log.warning("the migration lock is %d s old: its holder was killed; taking it", age[0][0])
            store.command(statement("drop_migration_lock"))
            continue
        pause.wait(0.5)
    raise MigrationLockedError(
        f"another process is migrating {store.settings.address} and does not finish. "
        f"If none is running, drop table schema_migrations_lock"
    )
