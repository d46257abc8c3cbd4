"""Days built from what is told: the same again from the same data, and nothing twice."""

from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pipeline.__main__ import build as application
from pipeline.core.fleet.coalesce import CURVE_S, WINDOWS, closings, episodes, sensitivity
from pipeline.core.fleet.records import Cohort, Exposure, FleetSpan
from pipeline.fleet.day_rows import EXPOSURE_DAYS, FLEET_BUILDS, Build, exposure_rows
from pipeline.store.clickhouse import Store
from schemas import records as r
from tests.store import fleet_seed, seed
from tests.store.conftest import put, url_of, value
from tests.store.fleet_seed import BUILT_MS, DAY1, DAY2, HOUR, build, event, put_spans, span
from tests.store.seed import NS

MARCH_1, MARCH_2 = date(2026, 3, 1), date(2026, 3, 2)
GPU = span("c1", "installed", "gpu", "g1", DAY1, node="n1", facts={"pci_bus_id": "0000:30:00.0", "sku": "h100"})
BUS = "0000:30:00.0"


def told(store: Store, *events: r.Event) -> None:
    """Events of n1."""
    put(store, *(fleet_seed.batch_of("n1", [one]) for one in events))


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in store.rows(sql)]


@pytest.mark.clickhouse
def test_a_day_built_again_says_the_same_and_keeps_what_was_built_before(store: Store) -> None:
    fleet_seed.fill(store)
    tables = ("exposure_days", "episode_days", "failure_days", "data_quality")
    first = {name: rows(store, f"SELECT * EXCEPT built_at FROM {name} ORDER BY ALL") for name in tables}
    build(store, "c1", MARCH_1, built_at_ms=BUILT_MS + 5000)
    assert all(first.values())
    assert {name: rows(store, f"SELECT * EXCEPT built_at FROM {name} ORDER BY ALL") for name in tables} == first
    assert value(store, "SELECT count() FROM fleet_builds WHERE cluster = 'c1' AND day = '2026-03-01'") == 2
    assert value(store, "SELECT uniqExact(built_at) FROM exposure_days_rows WHERE day = '2026-03-01'") == 2


@pytest.mark.clickhouse
def test_a_build_that_was_cut_off_counts_for_nothing(store: Store) -> None:
    fleet_seed.fill(store)
    before = rows(store, "SELECT * FROM exposure_days ORDER BY ALL")
    later = "SELECT * REPLACE (built_at + toIntervalHour(1) AS built_at) FROM exposure_days_rows"
    store.command(f"INSERT INTO exposure_days_rows {later}")
    assert rows(store, "SELECT * FROM exposure_days ORDER BY ALL") == before


@pytest.mark.clickhouse
def test_a_block_that_is_sent_again_counts_once(store: Store) -> None:
    build = Build(run="live", run_id="r1", cluster="c1", day=MARCH_1, built_at_ms=BUILT_MS)
    exposure = Exposure(cluster="c1", unit_kind="gpu", unit="g1", node="n1", cohort=Cohort(), installed_ns=HOUR)
    for _ in range(2):
        store.insert(EXPOSURE_DAYS, exposure_rows(build, [exposure]))
    store.insert(FLEET_BUILDS, [(*build.head, "0", "d1", "late data")])
    assert rows(store, "SELECT unit, installed_ns FROM exposure_days") == [("g1", HOUR)]


@pytest.mark.clickhouse
def test_an_event_on_a_node_with_two_jobs_counts_once(store: Store) -> None:
    fleet_seed.fill(store)
    assert value(store, "SELECT count() FROM event_jobs WHERE reporter = 'n1' AND event_id = 'e000001'") == 2
    assert rows(store, "SELECT unit, lines, episodes FROM episode_days WHERE xid = 79") == [("g1", 1, 1)]


@pytest.mark.clickhouse
def test_an_episode_over_midnight_counts_on_the_day_it_begins(store: Store) -> None:
    put_spans(store, [GPU])
    told(store, *(event(i, "n1", "gpu.xid", DAY2 + (i - 3) * 100 * NS, bus=BUS, xid="119") for i in range(6)))
    for day in (MARCH_1, MARCH_2):
        build(store, "c1", day)
    found = rows(store, "SELECT day, lines, episodes FROM episode_days ORDER BY day")
    assert found == [(MARCH_1, 3, 1), (MARCH_2, 3, 0)]


@pytest.mark.clickhouse
def test_a_line_counts_on_its_day_however_late_it_was_read(store: Store) -> None:
    put_spans(store, [GPU])
    early, late, later = (event(i, "n1", "gpu.xid", DAY1 + i * HOUR, bus=BUS, xid="79") for i in (1, 2, 25))
    read_ns = DAY1 + 40 * 24 * HOUR
    told(store, early, replace(late, observed_time_unix_nano=read_ns), replace(later, observed_time_unix_nano=read_ns))
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT day, lines FROM episode_days") == [(MARCH_1, 2)]
    build(store, "c1", MARCH_2)
    assert rows(store, "SELECT day, lines, episodes FROM episode_days WHERE day = '2026-03-02'") == [(MARCH_2, 1, 0)]


@pytest.mark.clickhouse
def test_a_reset_ends_an_episode_and_so_does_a_reboot(store: Store) -> None:
    reset = span("c1", "reset", "gpu", "g1", DAY1 + HOUR, DAY1 + HOUR + NS, node="n1")
    put_spans(store, [GPU, reset])
    hours = (0.9, 1.1, 1.2)
    told(store, *(event(i, "n1", "gpu.xid", DAY1 + int(h * HOUR), bus=BUS, xid="94") for i, h in enumerate(hours)))
    again = fleet_seed.batch_of("n1", [event(9, "n1", "gpu.xid", DAY1 + 2 * HOUR, bus=BUS, xid="94")])
    put(store, replace(again, boot_id="b2"), first_offset=50)
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT lines, episodes FROM episode_days") == [(4, 3)]


NODE = span("c1", "installed", "node", "n1", DAY1)
T10 = DAY1 + 10 * HOUR


def _placed(store: Store, *spans: r.PlacementSpan) -> None:
    """Who ran on n1, where a rank of the job was heard of at 10:00 and 10:30 and the kernel at 11:00."""
    heard = [event(1, "n1", "train.step", T10, rank=0), event(2, "n1", "train.step", T10 + HOUR // 2, rank=1)]
    put_spans(store, [NODE, GPU])
    fault = event(3, "n1", "gpu.xid", T10 + HOUR, bus=BUS, xid="79")
    put(store, *(fleet_seed.batch_of("n1", [one], job="job7") for one in (*heard, fault)))
    put(store, replace(seed.placement(), spans=list(spans)))


def _busy_minutes(store: Store) -> list[tuple[Any, ...]]:
    build(store, "c1", MARCH_1)
    return rows(store, "SELECT unit, busy_ns / 6e10 FROM exposure_days ORDER BY unit")


@pytest.mark.clickhouse
@pytest.mark.parametrize("start_ns", [0, T10])
def test_a_rank_whose_end_nobody_told_is_busy_as_long_as_its_job_was_heard_of(store: Store, start_ns: int) -> None:
    span = r.PlacementSpan(job_id="job7", start_unix_nano=start_ns, rank=0, source="rank0.log:3")
    _placed(store, span)
    assert _busy_minutes(store) == [("g1", 30), ("n1", 30)]


@pytest.mark.clickhouse
def test_a_rank_of_which_only_its_death_is_told_was_busy_until_then(store: Store) -> None:
    _placed(store, r.PlacementSpan(job_id="job7", start_unix_nano=0, end_unix_nano=T10 + HOUR // 4, rank=0))
    assert _busy_minutes(store) == [("g1", 15), ("n1", 15)]


@pytest.mark.clickhouse
def test_a_job_that_the_scheduler_has_not_ended_is_busy_still(store: Store) -> None:
    whole = r.PlacementSpan(job_id="job7", start_unix_nano=T10, scheduler="slurm", source="jobs:1")
    _placed(store, whole, r.PlacementSpan(job_id="job7", start_unix_nano=T10, rank=0, source="rank0.log:3"))
    assert _busy_minutes(store) == [("g1", 14 * 60), ("n1", 14 * 60)]


@pytest.mark.clickhouse
def test_a_gpu_that_nothing_is_told_of_is_named(store: Store) -> None:
    put_spans(store, [GPU])
    told(store, event(1, "n1", "gpu.xid", DAY1 + HOUR, bus="0000:99:00.0", xid="79"))
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT unit, episodes FROM episode_days") == [("n1/0000:99:00.0", 1)]
    assert rows(store, "SELECT kind, unit FROM data_quality") == [("events_of_unknown_gpu", "n1/0000:99:00.0")]


@pytest.mark.clickhouse
@pytest.mark.parametrize(("begin", "end"), [(DAY1 - 48 * HOUR, DAY1 - 24 * HOUR), (DAY2 + HOUR, None)])
def test_a_failure_of_a_gpu_that_was_there_on_another_day_is_not_its_nodes(
    store: Store, begin: int, end: int | None
) -> None:
    node = span("c1", "installed", "node", "n1", DAY1)
    put_spans(store, [node, span("c1", "installed", "gpu", "g1", begin, end, node="n1")])
    put(store, replace(seed.incident(), culprits=[r.Culprit(node="n1", gpu_uuid="g1", confidence=0.9)]))
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT kind, unit FROM data_quality") == [("failure_not_installed", "g1")]
    assert rows(store, "SELECT unit FROM exposure_days") == [("n1",)]
    assert rows(store, "SELECT incident_id FROM failure_days") == []


@pytest.mark.clickhouse
def test_an_incident_that_lies_on_no_day_is_named(store: Store) -> None:
    put_spans(store, [GPU])
    for name, at in (("i1", None), ("i2", "1999-03-01T00:00:00Z"), ("i3", "2098-03-01T00:00:00Z")):
        put(store, replace(seed.incident(), incident_id=name, started_at=at, detected_at=at))
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT kind, unit, substring(detail, 10, 2) FROM data_quality ORDER BY kind") == [
        ("failure_before_2000", "n1", "i2"), ("failure_in_future", "n1", "i3"), ("failure_without_time", "n1", "i1"),
    ]  # fmt: skip


@pytest.mark.clickhouse
def test_a_gpu_is_found_where_spans_call_its_node_by_machine_id(store: Store) -> None:
    put_spans(store, [{**GPU, "node": "m-77"}])
    line = fleet_seed.batch_of("n1", [event(1, "n1", "gpu.xid", DAY1 + HOUR, bus=BUS, xid="79")])
    put(store, replace(line, machine_id="m-77"))
    build(store, "c1", MARCH_1)
    assert rows(store, "SELECT unit, node, sku, episodes FROM episode_days") == [("g1", "m-77", "h100", 1)]


@pytest.mark.clickhouse
def test_a_line_counts_in_the_cohort_of_its_instant(store: Store) -> None:
    fleet_seed.fill(store)
    found = rows(
        store, "SELECT driver, node, episodes FROM episode_days WHERE xid = 31 AND unit = 'g1' ORDER BY driver"
    )
    assert found == [("535", "n1", 1), ("550", "n1", 1)]
    assert rows(store, "SELECT node FROM episode_days WHERE unit = 'g2'") == [("n2",)]


@pytest.mark.clickhouse
@pytest.mark.parametrize("seed", range(3))
def test_sql_counts_the_episodes_that_python_counts(store: Store, seed: int) -> None:
    dice = Random(seed)
    resets = sorted(DAY1 + dice.randrange(48 * 3600) * NS for _ in range(6))
    put_spans(store, [GPU, *(span("c1", "reset", "gpu", "g1", at - NS, at, node="n1") for at in resets)])
    times: dict[int, list[int]] = {xid: [] for xid in (31, 74, 79, 94, 119)}
    for number in range(400):
        at_ns = DAY1 + int(dice.random() ** 3 * 48 * 3600) * NS
        times[dice.choice(list(times))].append(at_ns + number)
    lines = [(xid, at_ns) for xid, at in times.items() for at_ns in at]
    told(store, *(event(i, "n1", "gpu.xid", at, bus=BUS, xid=str(xid)) for i, (xid, at) in enumerate(lines)))
    for day in (MARCH_1, MARCH_2):
        build(store, "c1", day)
    found = {xid: (n, c) for xid, n, *c in rows(store, COUNTS)}
    ends = [
        FleetSpan(cluster="c1", unit_kind="gpu", unit="g1", kind="reset", from_ns=at - NS, to_ns=at) for at in resets
    ]
    for xid, at in times.items():
        closes = closings(ends, WINDOWS[xid])
        curve = sensitivity({"g1": at}, CURVE_S, closes)
        assert found[xid] == (len(episodes(at, WINDOWS[xid], closes.get("g1", ()))), list(curve.values())), xid


COUNTS = "SELECT xid, sum(episodes), {} FROM episode_days GROUP BY xid".format(
    ", ".join(f"sum(by_window[{window_s}])" for window_s in CURVE_S)
)


@pytest.mark.clickhouse
def test_the_command_builds_days_and_says_what_it_found(store: Store) -> None:
    put_spans(store, [GPU])
    asked = ["rollup", "--day", "2026-03-01", "--why", "drains imported", "--clickhouse-url", url_of(store.settings)]
    answer = CliRunner().invoke(application("rollup"), asked)
    assert answer.exit_code == 0, answer.output
    assert answer.output == "2026-03-01 c1: 1 unit, 24.0 GPU-hours installed, 0 episodes, 0 failures, 0 doubts\n"
    assert rows(store, "SELECT day, why FROM fleet_builds") == [(MARCH_1, "drains imported")]


@pytest.mark.clickhouse
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--day", "yesterday"], "is not a day"),
        (["--day", "2026-03-01", "--to", "2026-03-02"], "not both"),
        (["--from", "2026-03-02", "--to", "2026-03-01"], "is before"),
        (["--day", "2099-01-01"], "2099-01-01 is not over"),
        (["--day", datetime.now(tz=UTC).date().isoformat()], "is not over"),
        (["--day", "1970-01-01"], "from 2000-01-01 to 2099-12-31"),
        (["--day", "9999-12-31"], "from 2000-01-01 to 2099-12-31"),
        (["--run", "dream"], "it is one of live, replay, drill"),
        (["--cluster", "nowhere"], "nothing is told of any unit of cluster nowhere"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(shared_store: Store, asked: list[str], says: str) -> None:
    given = ["rollup", *asked, "--clickhouse-url", url_of(shared_store.settings)]
    answer = CliRunner().invoke(application("rollup"), given)
    assert answer.exit_code == 2
    assert says in answer.output
