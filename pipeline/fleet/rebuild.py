"""Events and incidents made again of the raw lines that are kept, beside those that stand, then put in their place.

What is made lies in tables of its own (`rebuild_…`) until it is put in place, which takes one statement a table: the
parts are attached, and their rows stand by their higher version. What no longer comes out of its line is marked as gone
in the same way, so lines and events that arrive meanwhile are never lost. A rebuild that was killed while it read is
dropped by the next one; one that was killed while it put things in place is brought to its end.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Final

from msgspec import Struct

from pipeline import VERSION
from pipeline.core import keys
from pipeline.core.fleet.rebuilt import Comparison, NameCount, by_class, changes, revised
from pipeline.fleet.rebuild_journal import (
    Entry,
    RebuildError,
    Window,
    create_staging,
    drop_staging,
    in_state,
    note,
    put_in_place,
    rebuild_id_of,
)
from pipeline.fleet.rebuild_raw import FOLDER, reporters
from pipeline.fleet.rebuild_read import Reading, Staging, close_reporters, conclude, incident_of, read_reporter
from pipeline.rules import load_rules
from pipeline.store.clickhouse import Store
from pipeline.store.errors import StoreError
from pipeline.store.rows import Delivery
from pipeline.store.sqlfiles import statement
from schemas import signals
from schemas.records import Incident
from schemas.vocabulary import STANDING

TELL_EVERY_S: Final = 10.0
# A node's failures are told apart by an hour of quiet: what began so near to the edge of the days may be half of one.
EDGE: Final = timedelta(hours=1)

# Hears what is being done, and how far it is.
Said = Callable[[str], None]


class Scope(Struct, frozen=True, kw_only=True):
    """What lies in the days. `events_without_line` and `events_before` (of days before `oldest`) stay as they are."""

    since: date
    until: date
    oldest: date
    lines: int
    reporters: int
    events: int
    events_without_line: int
    events_before: int


def window_of(store: Store, cluster: str, since: date | None, until: date | None, today: date) -> tuple[Window, date]:
    """The days to rebuild and the oldest day of which lines are kept. Raises RebuildError where there are none.

    By default all days of which lines are kept, today left out: it is still being written.
    """
    oldest, newest, lines = store.rows(statement("raw_days", FOLDER), {"cluster": cluster})[0]
    if not lines:
        where = f" of cluster {cluster}" if cluster else ""
        raise RebuildError(f"no raw lines{where} are kept: nothing can be rebuilt")
    first = max(since or oldest, oldest)
    last = min(until or newest, newest, today - timedelta(days=1))
    if first > last:
        raise RebuildError(
            f"raw lines are kept from {oldest} to {newest}, and today is not rebuilt as it is still being written: "
            f"no day is left. Choose --since and --until between them"
        )
    return Window(since=first, until=last, cluster=cluster), oldest


def scope_of(store: Store, window: Window, oldest: date) -> Scope:
    """What lies in the days."""
    row = store.rows(statement("scope", FOLDER), {**window.parameters, "oldest": oldest})[0]
    lines, names, events, without_line, before = row
    return Scope(
        since=window.since, until=window.until, oldest=oldest, lines=lines, reporters=names, events=events,
        events_without_line=without_line, events_before=before,
    )  # fmt: skip


@contextmanager
def begun(store: Store, window: Window, *, now_ms: int) -> Iterator["Rebuild"]:
    """A rebuild with its tables, which are gone afterwards; what was not put in place is dropped."""
    rebuild = Rebuild(store, window, now_ms=now_ms)
    rebuild.tell("reading")
    try:
        create_staging(store)
    except StoreError:
        rebuild.tell("dropped")
        raise
    try:
        yield rebuild
    finally:
        # What is half in place is brought to its end by the next one, out of these tables.
        if rebuild.entry.state != "swapping":
            if rebuild.entry.state != "done":
                rebuild.tell("dropped")
            drop_staging(store)


class Rebuild:
    """One rebuild: build, look at the comparison, swap. Made by `begun`."""

    def __init__(self, store: Store, window: Window, *, now_ms: int) -> None:
        self._store = store
        self._window = window
        self._rules = load_rules()
        self._delivery = Delivery(timestamp_ms=now_ms, offset=0)
        self._staging = Staging(store, self._delivery)
        self.entry = Entry(
            rebuild_id=rebuild_id_of(now_ms), window=window, state="reading", engine_version=VERSION,
            rules_digest=self._rules.digest, started_ms=now_ms, told_ms=now_ms,
        )  # fmt: skip
        self._told_s = time.monotonic()

    def tell(self, state: str, counts: dict[str, int] | None = None) -> None:
        """Write the state into the journal."""
        entry = in_state(self.entry, state, counts or {})
        note(self._store, entry)
        self.entry, self._told_s = entry, time.monotonic()

    def build(self, said: Said) -> Comparison:
        """Read all lines of the days again, conclude, and compare with what stands."""
        known, window = signals.load(), self._window.parameters
        sent_by, reading, days = reporters(self._store, window), Reading(), self._window.days()
        for number, who in enumerate(sent_by, 1):
            said(f"reading {who.cluster}/{who.name}, {number} of {len(sent_by)}, {reading.lines} lines read")
            read_reporter(self._store, self._staging, known, who, window, reading, days)
            self._tell_in_time({"lines": reading.lines})
        close_reporters(self._store, self._staging, known, reading)
        self._mark_gone(said)
        made = conclude(self._store, self._rules, lambda done, of: self._concluded(said, done, of))
        return self._compare(made, reading.lines)

    def _concluded(self, said: Said, done: int, of: int) -> None:
        said(f"working out what it means: {done} of {of} jobs and nodes")
        self._tell_in_time({})

    def _tell_in_time(self, counts: dict[str, int]) -> None:
        if time.monotonic() - self._told_s > TELL_EVERY_S:
            self.tell("reading", counts)

    def _mark_gone(self, said: Said) -> None:
        """Mark what no longer comes out of its line, and links that no longer hold."""
        self._store.command(statement("find_cut_jobs", FOLDER), self._window.parameters)
        self._store.command(statement("find_cut_names", FOLDER))
        for day in self._window.days():
            said(f"comparing events of {day}")
            named = {"day": day, "cluster": self._window.cluster, "version": self._delivery.version}
            self._store.command(statement("mark_gone_events", FOLDER), named)
            self._store.command(statement("mark_gone_links", FOLDER), named)
            self._tell_in_time({})

    def _compare(self, made: dict[str, Incident], lines: int) -> Comparison:
        """What would change; the revisions it takes are staged."""
        window = self._window.parameters
        rows = self._store.rows(statement("incidents", FOLDER), window)
        stood = {incident.incident_id: (incident, int(n)) for text, n in rows for incident in [incident_of(text)]}
        cut = {(cluster, key) for cluster, key in self._store.rows(statement("cut_jobs", FOLDER))}
        inside = {name: one for name, (one, _) in stood.items() if self._is_inside(one, cut)}
        again = {
            name: one for name, one in made.items()
            if name in inside or (name not in stood and self._is_inside(one, cut))
        }  # fmt: skip
        corrected = frozenset(row[0] for row in self._store.rows(statement("corrected", FOLDER), window))
        found = changes(inside, again, corrected)
        for change in found:
            revision = stood[change.incident_id][1] if change.incident_id in stood else 0
            revision_of_it = revised(change, inside.get(change.incident_id), again.get(change.incident_id), revision)
            if revision_of_it is not None:
                self._staging.keep(revision_of_it)
        self._staging.flush()
        events = [
            NameCount(name=name, before=before, after=after, added=added, gone=gone)
            for name, before, after, added, gone in self._store.rows(statement("events_by_name", FOLDER), window)
        ]
        stand = sum(one.state in STANDING for one in inside.values())
        comparison = Comparison(
            events=events, classes=by_class(inside.values(), again.values()), changes=found,
            unchanged=stand - sum(change.kind != "new" for change in found), left=len(stood) - len(inside),
        )  # fmt: skip
        self.tell("compared", {"lines": lines, **_counts(comparison)})
        return comparison

    def _is_inside(self, incident: Incident, cut: set[tuple[str, str]]) -> bool:
        """Whether all that an incident rests on was read again: its whole jobs, or for a node's the hour around it."""
        if incident.jobs:
            names = (keys.job_key("", incident.cluster, job.job_id, job.attempt) for job in incident.jobs)
            return not any((incident.cluster, name) in cut for name in names)
        began = incident.started_at or incident.detected_at
        if began is None:
            return False
        at = datetime.fromisoformat(began)
        first = datetime.combine(self._window.since, datetime.min.time(), UTC) + EDGE
        return first <= at <= datetime.combine(self._window.until, datetime.max.time(), UTC) - EDGE

    def swap(self) -> None:
        """Put what was made in place. Raises RebuildError where an incident was revised meanwhile."""
        now = {name: int(revision) for name, revision in self._store.rows(statement("revisions", FOLDER))}
        staged = self._store.rows(statement("staged_revisions", FOLDER))
        behind = [name for name, revision in staged if now.get(name, 0) >= revision]
        if behind:
            raise RebuildError(
                f"{len(behind)} incidents were revised while this was read ({', '.join(behind[:5])}): run it again"
            )
        self.tell("swapping")
        put_in_place(self._store)
        self.tell("done")


def _counts(comparison: Comparison) -> dict[str, int]:
    kinds = [change.kind for change in comparison.changes]
    return {
        "events_before": sum(count.before for count in comparison.events),
        "events_after": sum(count.after for count in comparison.events),
        "events_new": sum(count.added for count in comparison.events),
        "events_gone": sum(count.gone for count in comparison.events),
        "incidents_new": kinds.count("new"), "incidents_gone": kinds.count("gone"),
        "incidents_changed": kinds.count("changed"), "incidents_unchanged": comparison.unchanged,
        "incidents_left": comparison.left,
    }  # fmt: skip
