"""Which rebuild is at work, how far it is, and what to do where one was killed.

The tables of a rebuild are its lock: they can be created once. The journal (`rebuilds`) says what they are for.
"""

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.fleet.rebuild_raw import FOLDER
from pipeline.store.clickhouse import Store
from pipeline.store.errors import StoreError, StoreRefusedError
from pipeline.store.sqlfiles import split_statements, statement
from pipeline.store.tables import Table

TABLE_ALREADY_EXISTS: Final = 57
# A rebuild that has not been heard of for so long was killed.
STALE_MS: Final = 600_000
_JOURNAL: Final = Table(
    name="rebuilds_rows",
    columns=(
        "rebuild_id", "cluster", "since", "until", "state", "engine_version", "rules_digest", "started_at", "told_at",
        "counts",
    ),
)  # fmt: skip


class RebuildError(StoreError):
    """A rebuild that cannot be done; the text says why and what to do."""


class Window(Struct, frozen=True, kw_only=True):
    """The UTC days of a rebuild, both included. `cluster`: empty for all."""

    since: date
    until: date
    cluster: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """What names it in a query."""
        return {"since": self.since, "until": self.until, "cluster": self.cluster}

    def days(self) -> list[date]:
        """Its days."""
        return [self.since + timedelta(days=n) for n in range((self.until - self.since).days + 1)]


class Entry(Struct, frozen=True, kw_only=True):
    """An entry of the journal; times are Unix times in ms. States: reading, compared, swapping, done, dropped."""

    rebuild_id: str
    window: Window
    state: str
    engine_version: str
    rules_digest: str
    started_ms: int
    told_ms: int
    counts: dict[str, int] = {}


def rebuild_id_of(now_ms: int) -> str:
    """The name of a rebuild that begins now."""
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%dT%H%M%S}.{now_ms % 1000:03d}"


def note(store: Store, entry: Entry) -> None:
    """Write an entry."""
    window = entry.window
    store.insert(
        _JOURNAL,
        [
            (
                entry.rebuild_id, window.cluster, window.since, window.until, entry.state, entry.engine_version,
                entry.rules_digest, _time(entry.started_ms), _time(entry.told_ms), entry.counts,
            )
        ],
    )  # fmt: skip


def in_state(entry: Entry, state: str, counts: dict[str, int]) -> Entry:
    """The entry in another state, now, with more counts."""
    now_ms = max(entry.told_ms + 1, time.time_ns() // 1_000_000)
    return msgspec.structs.replace(entry, state=state, told_ms=now_ms, counts={**entry.counts, **counts})


def unfinished(store: Store) -> Entry | None:
    """The rebuild that is at work or was killed, if there is one."""
    for rebuild_id, cluster, since, until, state, version, digest, started_ms, told_ms, counts in store.rows(
        statement("unfinished", FOLDER)
    ):
        return Entry(
            rebuild_id=rebuild_id, window=Window(since=since, until=until, cluster=cluster), state=state,
            engine_version=version, rules_digest=digest, started_ms=started_ms, told_ms=told_ms, counts=dict(counts),
        )  # fmt: skip
    return None


def settle(store: Store, now_ms: int) -> Entry | None:
    """Bring to an end what a killed rebuild left: what it was putting in place is put in place, all else is dropped.

    The entry as it is now, or None where nothing was left. Raises RebuildError where one is still at work.
    """
    left = unfinished(store)
    if left is None:
        return None
    if left.state == "swapping":
        put_in_place(store)
        ended = in_state(left, "done", {})
    elif now_ms - left.told_ms < STALE_MS:
        wait_s = (STALE_MS - (now_ms - left.told_ms)) // 1000 + 1
        raise RebuildError(
            f"rebuild {left.rebuild_id} is at work on {store.settings.address} (heard of "
            f"{max(0, now_ms - left.told_ms) // 1000} s ago). If it was killed, try again in {wait_s} s"
        )
    else:
        ended = in_state(left, "dropped", {})
    note(store, ended)
    drop_staging(store)
    return ended


def create_staging(store: Store) -> None:
    """Make the tables of a rebuild. Raises RebuildError where another one was quicker.

    The journal knows of it before: tables of which it does not know would be nobody's.
    """
    try:
        for sql in split_statements(statement("create_staging", FOLDER)):
            store.command(sql)
    except StoreRefusedError as error:
        if error.code == TABLE_ALREADY_EXISTS:
            raise RebuildError(f"another rebuild has just begun on {store.settings.address}") from None
        raise


def drop_staging(store: Store) -> None:
    """Remove the tables of a rebuild. The one that is the lock goes last."""
    for sql in split_statements(statement("drop_staging", FOLDER)):
        store.command(sql)


def put_in_place(store: Store) -> None:
    """Attach what was made to the tables. Done again it changes nothing."""
    for sql in split_statements(statement("swap", FOLDER)):
        store.command(sql)


def _time(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)
