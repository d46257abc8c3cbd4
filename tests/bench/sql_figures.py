"""`make bench-sql`: a large fleet in the real engine, and what the named queries cost there.

usage: python -m tests.bench.sql_figures [--events 100000000] [--gpus 100000] [--days 90] [--lines 30000000]
                                         [--data DIR] [--keep] [--plans]

Events, raw lines and an inventory are made by SQL, every day its own. Two days, one of each half, are built from their
events by `rootrank rollup`'s own code and measured; the rows of the other days are copies of the one of their half.
Of a query the time of its first run is shown and, of the five that follow, the middle and the longest: the first reads
from the disk. Before it all, writes reach the disk and merges end.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.fleet.day_rows import Build
from pipeline.fleet.rollup import Rules, build_day
from pipeline.rules import load_rules
from pipeline.store import migrations, queries
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from tests.bench.sql_inserts import insert_rates

SQL: Final = Path(__file__).parent / "sql"
FIRST: Final = date(2026, 3, 1)
BUILT_MS: Final = 1_790_000_000_000
BLOCK: Final = 2_000_000
LINE_DAYS: Final = 2
CHUNK_DAYS: Final = 15
MERGES_S: Final = 240
STILL_S: Final = 10
RUNS: Final = 5


def main() -> None:
    """Fill, build, ask, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--events", type=int, default=100_000_000)
    options.add_argument("--gpus", type=int, default=100_000)
    options.add_argument("--days", type=int, default=90)
    options.add_argument("--lines", type=int, default=30_000_000, help="raw lines, all in two days")
    options.add_argument("--data", type=Path, help="folder of the engine; one that is filled is asked as it is")
    options.add_argument("--keep", action="store_true", help="leave the folder there")
    options.add_argument("--plans", action="store_true", help="print which parts and granules are read, and why")
    given = options.parse_args()
    folder = given.data or Path(tempfile.mkdtemp(prefix="rootrank-bench-"))
    server = ClickHouseServer(folder)
    began = time.monotonic()
    try:
        store = Store(settings_from_url(f"{server.start()}/rootrank"))
        parts: list[Iterator[str]] = []
        if migrations.apply(store, migrations.load_migrations()):
            parts += [_fill(store, given), _settled(store)]
        parts += [_sizes(store), _asked(store, given.gpus, given.days, plans=given.plans), insert_rates(store)]
        for rows in parts:
            _print(_elapsed(began))
            for row in rows:
                _print(row)
        _print(_elapsed(began))
    finally:
        server.stop()
        if not given.keep and given.data is None:
            shutil.rmtree(folder, ignore_errors=True)


def _elapsed(began: float) -> str:
    """What else the machine does is part of every figure."""
    return f"-- after {time.monotonic() - began:.0f} s, load average {os.getloadavg()[0]:.1f}"


def _print(row: str) -> None:
    sys.stdout.write(row + "\n")
    sys.stdout.flush()


def _run(store: Store, name: str, **parameters: Any) -> None:
    store.command((SQL / f"{name}.sql").read_text(encoding="utf-8").strip(), parameters)


def _fill(store: Store, given: argparse.Namespace) -> Iterator[str]:
    yield f"{os.cpu_count()} cores; {given.events:,} events, {given.gpus:,} GPUs, {given.days} days"
    fleet = {"gpus": given.gpus, "days": given.days, "first_day": FIRST}
    for name in ("spans", "incidents", "culprits"):
        _run(store, name, **fleet)
    a_day, lines_a_day = given.events // given.days, given.lines // LINE_DAYS
    began = time.monotonic()
    _at_once(store, "events", [FIRST + timedelta(number) for number in range(given.days)], a_day, gpus=given.gpus)
    yield f"events made by INSERT SELECT: {a_day * given.days / (time.monotonic() - began):,.0f} rows/s"
    began = time.monotonic()
    days = [FIRST + timedelta(3 + number) for number in range(LINE_DAYS)]
    _at_once(store, "raw_lines", days, lines_a_day, gpus=given.gpus, a_day=lines_a_day)
    yield f"raw lines made the same way: {given.lines / (time.monotonic() - began):,.0f} rows/s"
    yield from _days(store, given.days)


def _at_once(store: Store, name: str, days: list[date], rows_a_day: int, **parameters: Any) -> None:
    """Fill days in blocks, as many at once as there are cores: one statement hardly uses more than one."""

    def fill(day: date, first: int) -> None:
        own = Store(store.settings)
        _run(own, name, day=day, first=first, rows=min(BLOCK, rows_a_day - first), **parameters)
        own.close()

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(
            threads.map(
                fill, *zip(*((day, first) for day in days for first in range(0, rows_a_day, BLOCK)), strict=True)
            )
        )


def _days(store: Store, days: int) -> Iterator[str]:
    """Build a day of each half, the first and the one in the middle, and copy them."""
    rules = load_rules()
    half = days // 2
    for begin, end in ((0, half), (half, days)):
        day = FIRST + timedelta(begin)
        for cluster in ("c0", "c1", "c2", "c3"):
            build = Build(run="live", run_id="bench", cluster=cluster, day=day, built_at_ms=BUILT_MS)
            began = time.monotonic()
            built = build_day(store, build, Rules(coalescing=rules.coalescing, digest=rules.digest), "bench")
            spent = time.monotonic() - began
            yield (
                f"rollup of {day} of {cluster}: {built.units:,} units, {built.episodes:,} episodes, "
                f"{built.failures} failures, {built.defects} doubts in {spent:.1f} s"
            )
        began = time.monotonic()
        for name in ("copy_exposure_days", "copy_episode_days", "copy_failure_days", "copy_builds"):
            for first in range(1, end - begin, CHUNK_DAYS):
                _run(store, name, day=day, first=first, end=min(first + CHUNK_DAYS, end - begin))
        yield f"its rows copied to the {end - begin - 1} days that follow, in {time.monotonic() - began:.1f} s"


def _settled(store: Store) -> Iterator[str]:
    """Wait until what was written is on the disk and merged, and nothing has been merged for a while."""
    os.sync()
    sql, began = (SQL / "merges.sql").read_text(encoding="utf-8"), time.monotonic()
    busy_s = began
    while (now_s := time.monotonic()) - busy_s < STILL_S and now_s - began < MERGES_S:
        if any(merges for (merges,) in store.rows(sql)):
            busy_s = now_s
        time.sleep(1)
    yield f"waited {time.monotonic() - began:.0f} s for merges"


def _sizes(store: Store) -> Iterator[str]:
    for table, rows, size, parts in store.rows((SQL / "sizes.sql").read_text(encoding="utf-8")):
        yield f"{table:28} {rows:>12,} rows {size / 1e6:>9,.0f} MB {size / rows:6.1f} bytes a row {parts:4} parts"


def _asked(store: Store, gpus: int, days: int, *, plans: bool) -> Iterator[str]:
    last = FIRST + timedelta(days - 1)
    window = {"from": str(FIRST), "to": str(last)}
    gpu = next(unit for (unit,) in store.rows((SQL / "one_gpu.sql").read_text(encoding="utf-8")))
    node = f"n{gpus // 24:06d}"
    asked: list[tuple[str, dict[str, str]]] = [
        ("mtbf_by_cohort", {**window, "by": "sku"}),
        ("mtbf_by_cohort", {**window, "by": "driver", "exposure": "busy"}),
        ("mtbf_by_class", window),
        ("gpu_life", {"gpu": gpu}),
        ("lines_around_incident", {"incident": "i777"}),
        ("node_around_incident", {"incident": "i777"}),
        ("switch_around", {"node": node, "at": "2026-03-05T12:00:00Z"}),
        ("xid_by_sku_and_driver", window),
        ("incidents_like", {"incident": "i777"}),
        ("symptom_storms", {"from": "2026-03-05T00:00:00Z", "to": "2026-03-06T00:00:00Z", "nodes": "16"}),
        ("repairs", {"unit": gpu}),
        ("data_quality", window),
    ]
    yield f"{'query':24} {'rows':>6} {'seconds':>8} {'longest':>8} {'first':>8} {'rows read':>12} {'MB read':>9}"
    for name, parameters in asked:
        query = queries.load_query(name)
        bound = queries.bind(query, parameters)
        first, _ = _timed(store, query.text, bound)
        runs = [_timed(store, query.text, bound) for _ in range(RUNS)]
        answer, times_s = runs[-1][1], sorted(time_s for time_s, _ in runs)
        read = answer["statistics"]
        yield (
            f"{name:24} {answer['rows']:>6} {times_s[RUNS // 2]:>8.3f} {times_s[-1]:>8.3f} {first:>8.3f} "
            f"{read['rows_read']:>12,} "
            f"{read['bytes_read'] / 1e6:>9,.1f}"
        )
        if plans:
            yield from _plan(store, query.text, bound)


def _timed(store: Store, text: str, bound: dict[str, str]) -> tuple[float, Any]:
    began = time.monotonic()
    answer = store.text(text, bound, "JSONCompact")
    return time.monotonic() - began, orjson.loads(answer)


def _plan(store: Store, text: str, bound: dict[str, str]) -> Iterator[str]:
    for (line,) in store.rows(f"EXPLAIN indexes = 1 {text}", bound):
        told = line.strip(" │└─├")
        if told.startswith(
            ("ReadFromMergeTree", "Parts:", "Granules:", "Name:", "PrimaryKey", "Skip", "Min-Max", "Partition")
        ):
            yield f"    {told}"


if __name__ == "__main__":
    main()
