"""Asks the store what it keeps of a job, over all its attempts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.launcher import Told
from pipeline.core.other_runs import left_out
from pipeline.store import queries
from pipeline.store.clickhouse import Store, reading_settings
from pipeline.store.history import JobHistory
from pipeline.store.settings import as_reader, read_password, settings_from_url
from schemas.records import Incident


def history_of(store: Store, job: str, *, run: str, cluster: str) -> JobHistory:
    """Ask all of it. `run` "all" and an empty cluster mean any. Raises StoreError."""
    given = {"job": job, "run": "" if run == "all" else run}

    def rows(name: str) -> list[dict[str, Any]]:
        found = queries.run_query(store, queries.load_query(name), given).objects()
        return [row for row in found if cluster in ("", row["cluster"])]

    found = JobHistory(
        attempts=rows("attempts_of_job"), marks=rows("marks_of_job"), nodes=rows("nodes_of_job"),
        incidents=_incidents(rows),
    )  # fmt: skip
    if found.attempts or found.incidents or not given["run"]:
        return found
    given["run"] = ""
    held = {(row["run"], row["cluster"], row["attempt"]) for row in rows("attempts_of_job")}
    return msgspec.structs.replace(found, other_runs=dict(Counter(name for name, _, _ in held if name != run)))


def reading_store(url: str, environment: Mapping[str, str]) -> Store:
    """The store as whom the environment names for `rootrank query`. Raises StoreError."""
    password_file = environment.get("CLICKHOUSE_PASSWORD_FILE")
    settings = settings_from_url(url, password_file=Path(password_file) if password_file else None)
    user, user_file = (environment.get(f"CLICKHOUSE_READER_{name}") for name in ("USER", "PASSWORD_FILE"))
    if user:
        password = read_password(Path(user_file)) if user_file else ""
        return Store(as_reader(settings, user=user, password=password))
    return Store(reading_settings(settings))


def histories(
    url: str, jobs: Sequence[str], environment: Mapping[str, str], *, run: str, cluster: str
) -> list[JobHistory]:
    """What the store at an address keeps of each of these jobs. Raises StoreError."""
    store = reading_store(url, environment)
    try:
        return [history_of(store, job, run=run, cluster=cluster) for job in jobs]
    finally:
        store.close()


def told_by(found: Sequence[JobHistory]) -> Told:
    """What the store tells a launcher of a job and, behind it, of earlier ones."""
    clusters = {name for one in found for name in one.clusters()}
    if len(clusters) > 1:
        return Told(remarks=[f"the job is in several clusters, give --cluster: {', '.join(sorted(clusters))}"])
    return Told(
        incidents=[incident for one in found for incident in one.incidents],
        attempts=[int(row["attempt"]) for row in found[0].attempts],
        nodes=sorted({str(row["node"]) for one in found for row in one.nodes}) or None,
        remarks=left_out(found[0].other_runs),
    )


def _incidents(rows: Callable[[str], list[dict[str, Any]]]) -> list[Incident]:
    """The incidents that this version can read."""
    found = []
    for row in rows("incidents_of_job"):
        try:
            found.append(msgspec.json.decode(row["incident"], type=Incident))
        except msgspec.MsgspecError:
            continue
    return found
