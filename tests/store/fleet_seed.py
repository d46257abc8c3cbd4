"""A small fleet over two days: c1 with n1, n2, n3 and six GPUs, c2 with m1 and two.

On 2026-03-01 from 10:00 job7 runs on n1 and n2 and job8 on n1 too; at 11:00 GPU g1 of n1 falls off the bus, which is
one event of both jobs. On 2026-03-02 n2 is drained from 00:00 to 06:00, g2 moves from n1 to n2 at 06:00, the driver of
n1 goes from 535 to 550 at 12:00, and m1 repeats one memory error for an hour. Switch leaf1 holds n1 and n2, leaf2 n3.
"""

from datetime import date
from typing import Any, Final

from msgspec.structs import replace

from pipeline.fleet.day_rows import Build
from pipeline.fleet.rollup import Rules, build_day
from pipeline.store.clickhouse import Store
from pipeline.store.tables import Table
from schemas import records as r
from schemas.vocabulary import IncidentState
from tests.store import seed
from tests.store.conftest import put
from tests.store.seed import NS, T0

HOUR: Final = 3600 * NS
DAY1: Final = T0 - 10 * HOUR
DAY2: Final = DAY1 + 24 * HOUR
RUN_ID: Final = seed.RUN_ID
BUILT_MS: Final = (DAY2 + 30 * HOUR) // 1_000_000


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SPANS: Final = Table(
    name="fleet_spans_rows",
    columns=_columns(
        "run run_id cluster source generation row unit_kind unit kind started_at ended_at node "
        "facts job_id attempt action outcome ticket known_at version"
    ),
)
ATTEMPTS: Final = Table(
    name="job_attempts_rows",
    columns=_columns(
        "run run_id cluster source generation row job_id attempt nodes gpus started_at ended_at "
        "end_state queued_ns owner known_at version"
    ),
)
CORRECTIONS: Final = Table(
    name="incident_corrections_rows",
    columns=_columns(
        "run run_id cluster incident_id corrected_at class unit_kind unit node is_failure why corrected_by"
    ),
)
_HOMES: Final = {"n1": ("g1", "g2"), "n2": ("g3", "g4"), "n3": ("g5", "g6"), "m1": ("g7", "g8")}
_LEAVES: Final = {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "m1": "leaf9"}


def span(
    cluster: str, kind: str, unit_kind: str, unit: str, begin_ns: int, end_ns: int | None = None, *, node: str = "",
    facts: dict[str, str] | None = None, job: str = "", action: str = "", ticket: str = "", outcome: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A row of fleet_spans_rows, without its address."""
    return {
        "cluster": cluster, "kind": kind, "unit_kind": unit_kind, "unit": unit, "started_at": begin_ns,
        "ended_at": end_ns, "node": node, "facts": facts or {}, "job_id": job, "attempt": 0, "action": action,
        "outcome": outcome, "ticket": ticket,
    }  # fmt: skip


def spans() -> list[dict[str, Any]]:
    """What an inventory and an operator tell."""
    told: list[dict[str, Any]] = []
    for node, gpus in _HOMES.items():
        cluster = "c2" if node == "m1" else "c1"
        facts = {"rack": f"r-{node}", "driver": "535", "leaf_switch": _LEAVES[node], "sku": "dgx"}
        told.append(span(cluster, "installed", "node", node, DAY1, node=node, facts=facts))
        for slot, gpu in enumerate(gpus):
            facts = {"sku": "a100" if node == "m1" else "h100", "pci_bus_id": f"0000:3{slot}:00.0"}
            end = DAY2 + 6 * HOUR if gpu == "g2" else None
            told.append(span(cluster, "installed", "gpu", gpu, DAY1, end, node=node, facts=facts))
    told += [
        span("c1", "installed", "gpu", "g2", DAY2 + 6 * HOUR, node="n2",
             facts={"sku": "h100", "pci_bus_id": "0000:32:00.0"}),
        span("c1", "facts", "node", "n1", DAY2 + 12 * HOUR, facts={"driver": "550"}),
        span("c1", "drain", "node", "n2", DAY2, DAY2 + 6 * HOUR, ticket="T-2"),
        span("c1", "drain", "gpu", "g1", T0 + HOUR + 300 * NS, T0 + 3 * HOUR, node="n1", ticket="T-1"),
        span("c1", "repair", "gpu", "g1", T0 + 2 * HOUR, T0 + 3 * HOUR, node="n1", action="reset", ticket="T-1",
             outcome="passed burn-in"),
        span("c2", "repair", "gpu", "g7", DAY2 + 14 * HOUR, None, node="m1", action="swap", ticket="T-3"),
        span("c1", "busy", "node", "n1", T0, T0 + HOUR, job="job7"),
        span("c1", "busy", "node", "n2", T0, T0 + HOUR, job="job7"),
        span("c1", "observed", "node", "n1", DAY1, DAY2 + 24 * HOUR),
        span("c1", "busy", "node", "n3", T0 + 2 * HOUR, T0 + HOUR, job="job9"),
    ]  # fmt: skip
    return told


def put_spans(
    store: Store, told: list[dict[str, Any]], *, generation: int = 1, known_ms: int = DAY1 // 10**6, version: int = 1,
    source: str = "fleet.csv",
) -> None:  # fmt: skip
    """Store spans as one import of one file."""
    rows = [
        {
            "run": "live", "run_id": RUN_ID, "source": source, "generation": generation, "row": number,
            "known_at": known_ms, "version": version, **row,
        }
        for number, row in enumerate(told, start=1)
    ]  # fmt: skip
    rows += [
        {**next(row for row in rows if row["cluster"] == cluster), "row": 0, "kind": "imported"}
        for cluster in sorted({row["cluster"] for row in rows})
        if generation
    ]
    store.insert(SPANS, [tuple(row[column] for column in SPANS.columns) for row in rows])


def event(
    number: int, node: str, name: str, at_ns: int, *, bus: str | None = None, xid: str = "", rank: int | None = None,
    role: str = "cause", scope: str = "gpu", switch: str | None = None,
) -> r.Event:  # fmt: skip
    """An event with its time known to the second."""
    return replace(
        seed.event(number, node=node, name=name), aligned_time_unix_nano=at_ns, lo_unix_nano=at_ns - NS,
        hi_unix_nano=at_ns + NS, observed_time_unix_nano=at_ns, role=role, scope=scope, count=1,
        body=f"{name} {xid}".strip(),
        subject=r.Entity(node=node, pci_bus_id=bus, rank=rank, switch=switch), attributes={"xid": xid} if xid else {},
    )  # fmt: skip


def batch_of(node: str, events: list[r.Event], *, job: str | None = None, cluster: str = "c1") -> r.EventBatch:
    key = f"{cluster}/{job}/0" if job else f"node:{cluster}/{node}/b1"
    batch = seed.event_batch(events, job_id=job, job_key=key, reporter=node)
    return replace(batch, cluster=cluster)


def events() -> list[r.EventBatch]:
    """The fault of n1, once for each of its jobs; what its neighbours say of it; a memory error that repeats."""
    fallen = event(1, "n1", "gpu.xid", T0 + HOUR, bus="0000:30:00.0", xid="79", rank=0)
    symptoms = [
        event(10 + rank, f"n{1 + rank // 2}", "nccl.watchdog.timeout", T0 + HOUR + (600 + rank) * NS, rank=rank,
              role="symptom", scope="rank")
        for rank in range(1, 4)
    ]  # fmt: skip
    flap = event(20, "n2", "ib.link_down", T0 + HOUR - 60 * NS, role="cause", scope="link", switch="leaf1")
    start = event(30, "n2", "train.start", T0, role="context", scope="job", rank=2)
    memory = [
        event(40 + i, "m1", "gpu.xid", DAY2 + hour * HOUR + i * 60 * NS, bus="0000:30:00.0", xid="94")
        for i, hour in enumerate((9, 10, 10, 10))
    ]  # fmt: skip
    moved = event(50, "n2", "gpu.xid", DAY2 + 7 * HOUR, bus="0000:32:00.0", xid="31")
    upgraded = [
        event(60 + hour, "n1", "gpu.xid", DAY2 + hour * HOUR, bus="0000:30:00.0", xid="31") for hour in (11, 13)
    ]  # fmt: skip
    return [
        batch_of("n1", [fallen, symptoms[0]], job="job7"),
        batch_of("n1", [fallen], job="job8"),
        batch_of("n2", [start, *symptoms[1:], flap], job="job7"),
        batch_of("m1", memory, cluster="c2"),
        batch_of("n2", [moved]),
        batch_of("n1", upgraded),
    ]


def incident(
    number: int, class_: str, at: str, *, cluster: str = "c1", node: str = "n1", bus: str | None = "0000:30:00.0",
    jobs: tuple[str, ...] = ("job7",), state: IncidentState = "open", detected_s: int = 4,
) -> r.Incident:  # fmt: skip
    """An incident that blames one GPU or, without a bus id, one node."""
    return replace(
        seed.incident(class_=class_), incident_id=f"i{number}", cluster=cluster, state=state,
        started_at=f"2026-03-{at}Z", detected_at=f"2026-03-{at[:-2]}{int(at[-2:]) + detected_s:02d}Z",
        jobs=[r.Job(job_id=job, world_size=4) for job in jobs], xid=79 if class_.endswith("xid_79") else None,
        culprits=[r.Culprit(node=node, pci_bus_id=bus, confidence=0.9)],
    )  # fmt: skip


def incidents() -> list[r.Incident]:
    """Five that stand or are corrected, and one that a joined one has replaced."""
    return [
        incident(1, "hardware/gpu_xid_79", "01T11:00:00", jobs=("job7", "job8")),
        incident(2, "hardware/gpu_ecc_uncorrectable", "02T09:00:00", cluster="c2", node="m1", jobs=()),
        incident(3, "hardware/gpu_xid_79", "02T07:00:00", node="n2", bus="0000:32:00.0", detected_s=8),
        incident(4, "software/python_exception", "02T20:00:00", node="n3", bus=None, jobs=("job9",)),
        incident(5, "hardware/gpu_xid_79", "02T03:00:00", node="n2"),
        incident(6, "network/ib_link_flap", "02T21:00:00", node="n3", bus=None, state="superseded"),
        incident(7, "hardware/thermal", "02T22:00:00", node="n3", bus=None),
    ]


def placement(node: str) -> r.Placement:
    """Where the ranks of job7 run for an hour: 0 and 1 on n1, 2 and 3 on n2."""
    told = seed.placement(2, node)
    first = 0 if node == "n1" else 2
    spans = [replace(s, rank=first + i, end_unix_nano=T0 + HOUR) for i, s in enumerate(told.spans)]
    return replace(told, spans=spans)


def fill(store: Store) -> None:
    """Everything, and the builds of both days."""
    put_spans(store, spans())
    lines = [
        replace(seed.batch("n1", lines=30), source_attributes={"kern.log": {"kind": "kernel"}}),
        replace(seed.batch("m1", lines=2, first=100, observed_ns=DAY2 + 9 * HOUR), cluster="c2"),
    ]
    at_fault = replace(
        seed.batch("n1", seq=3, first=200, lines=5, observed_ns=T0 + HOUR - 202 * NS),
        records=[
            replace(line, observed_time_unix_nano=T0 + HOUR + (i - 2) * 40 * NS)
            for i, line in enumerate(seed.batch("n1", seq=3, first=200, lines=5).records)
        ],
    )
    put(store, *lines, at_fault, *events(), *incidents(), *(placement(node) for node in ("n1", "n2")))
    put(store, seed.progress("n1"), seed.progress("n3"), seed.dead_letter(), timestamp_ms=T0 // 10**6, first_offset=500)
    put_spans(store, [span("c1", "imported", "", "", DAY1)], source="sacct.txt")
    store.insert(
        ATTEMPTS,
        [
            ("live", RUN_ID, "c1", "sacct.txt", 1, 1, "job7", 0, ["n1", "n2"], 4, T0, T0 + HOUR, "node_failure",
             120 * NS, "ada", DAY1 // 10**6, 1),
            ("live", RUN_ID, "c1", "sacct.txt", 1, 2, "job7", 1, ["n2", "n3"], 4, T0 + 2 * HOUR, T0 + 20 * HOUR,
             "completed", 60 * NS, "ada", DAY1 // 10**6, 1),
        ],
    )  # fmt: skip
    correct(store, "i7", at_ms=BUILT_MS - 1000, is_failure=False)
    correct(store, "i4", at_ms=BUILT_MS - 1000, class_="hardware/host_memory", node="n3")
    for cluster in ("c1", "c2"):
        for day in (date(2026, 3, 1), date(2026, 3, 2)):
            build(store, cluster, day)


def correct(
    store: Store, incident_id: str, *, at_ms: int, class_: str = "", node: str = "", is_failure: bool = True
) -> None:
    """What a person knows better: not a failure, or another class on another node."""
    unit_kind = "node" if node else ""
    told = (
        "live",
        RUN_ID,
        "c1",
        incident_id,
        at_ms,
        class_,
        unit_kind,
        node,
        node,
        is_failure,
        "looked at it",
        "grace",
    )
    store.insert(CORRECTIONS, [told])


def build(store: Store, cluster: str, day: date, *, built_at_ms: int = BUILT_MS, why: str = "late data") -> None:
    """Build one day with the windows that need no rules."""
    one = Build(run="live", run_id=RUN_ID, cluster=cluster, day=day, built_at_ms=built_at_ms)
    build_day(store, one, Rules(coalescing={}, digest="d1"), why)
