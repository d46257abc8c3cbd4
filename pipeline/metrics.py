"""Every metric, declared once: name, kind, what it means, what to do when it moves. `docs/metrics.md` is made from it.

Labels are bounded (source, stage, reason, topic, table): never a job, host or incident.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pipeline import VERSION
from pipeline.rules import load_rules

Kind = Literal["counter", "gauge", "histogram"]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Seconds. A verdict is due within a second; a spooled log may revise one an hour later.
_LATENCY_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One metric as it is documented and exported."""

    name: str
    kind: Kind
    meaning: str
    do: str
    labels: tuple[str, ...] = ()


BUILD_INFO: Final = Definition(
    name="rootrank_build_info", kind="gauge", labels=("version", "rules_digest"),
    meaning="Always 1; the labels say which code and which rules run.",
    do="Nothing. Two values at once mean that a roll-out is under way or stuck.",
)  # fmt: skip
STAGE_MESSAGES: Final = Definition(
    name="rootrank_stage_messages_total", kind="counter", labels=("stage",),
    meaning="Messages that a stage (align, detect, join) has worked on since its worker started.",
    do="align flat at zero while jobs run: look at the shippers (`rootrank-shipper check`).",
)  # fmt: skip
STAGE_OUTPUTS: Final = Definition(
    name="rootrank_stage_outputs_total", kind="counter", labels=("stage",),
    meaning="Records that a stage has sent on.",
    do="align flat with messages coming in: the signal files do not fit, or the jobs print nothing that matters.",
)  # fmt: skip
STAGE_SNAPSHOTS: Final = Definition(
    name="rootrank_stage_snapshot_bytes_total", kind="counter", labels=("stage",),
    meaning="Bytes of state that a stage has saved, compressed.",
    do="Steep: an investigation is large and keeps changing; read the newest incident.",
)  # fmt: skip
STAGE_RESETS: Final = Definition(
    name="rootrank_stage_resets_total", kind="counter", labels=("stage",),
    meaning="How often a stage dropped its memory and loaded its saved states again (after each assignment).",
    do="Rising for minutes: workers come and go; look at their logs.",
)  # fmt: skip
DEAD_LETTERS: Final = Definition(
    name="rootrank_dead_letters_total", kind="counter", labels=("stage",),
    meaning="Messages that could not be used. Each is kept with its address on the topic dead.letter.",
    do="Any rise: `rootrank sql \"SELECT * FROM dead_letters ORDER BY observed_time DESC LIMIT 20\"`.",
)  # fmt: skip
UNVERIFIED: Final = Definition(
    name="rootrank_unverified_records_total", kind="counter", labels=("record",),
    meaning="Records of live reporters whose signature failed its check (--trust), by kind of record.",
    do="Any rise: `rootrank query unverified` says in whose name and why (docs/node-agent/trust.md).",
)  # fmt: skip
INCIDENTS: Final = Definition(
    name="rootrank_incidents_total", kind="counter", labels=("domain", "run"),
    meaning="Incidents opened, by domain of the class and by run.",
    do="Read them: `rootrank incidents`.",
)  # fmt: skip
CONSUMER_LAG: Final = Definition(
    name="rootrank_consumer_lag_messages", kind="gauge", labels=("topic",),
    meaning="Messages that wait to be read, by topic.",
    do="Rising for minutes: add a worker, up to the number of partitions.",
)  # fmt: skip
EVENT_TO_INCIDENT: Final = Definition(
    name="rootrank_event_to_incident_seconds", kind="histogram",
    meaning="Live incidents: from the start of the root event to the first revision in the feed.",
    do="p99 above 5 s: look at the lag of the group `rootrank` (we are slow) and `rootrank query silent_nodes`.",
)  # fmt: skip
STORE_ROWS: Final = Definition(
    name="rootrank_store_rows_total", kind="counter", labels=("table",),
    meaning="Rows written to ClickHouse, by table.",
    do="Flat while events rise: ClickHouse is away; nothing is lost, the rows wait in Kafka.",
)  # fmt: skip
FEED_INCIDENTS: Final = Definition(
    name="rootrank_feed_incidents", kind="gauge",
    meaning="Incidents that the web feed holds in memory, of all runs.",
    do="Zero although there were incidents: the feed cannot read its topic, see /healthz.",
)  # fmt: skip
FEED_STREAMS: Final = Definition(
    name="rootrank_feed_streams", kind="gauge",
    meaning="Live streams (server-sent events) that are open.",
    do="Near the limit: raise max_streams, or find the client that opens so many.",
)  # fmt: skip
FEED_STREAMS_REFUSED: Final = Definition(
    name="rootrank_feed_streams_refused_total", kind="counter",
    meaning="Live streams refused because too many were open.",
    do="As above; pages that were refused still work as a snapshot and try again.",
)  # fmt: skip
CLOCK_NODES: Final = Definition(
    name="rootrank_clock_nodes", kind="gauge", labels=("quality",),
    meaning="Live nodes by quality of their clock: good, holdover, stepped, none (not measured), silent (not told for "
    "2 minutes).",
    do="holdover, none or silent rising: `rootrank clocks --bad` says which and why (docs/clocks.md).",
)  # fmt: skip
CLOCK_WIDEST_BOUND: Final = Definition(
    name="rootrank_clock_widest_bound_seconds", kind="gauge",
    meaning="The widest certain bound of a live node's clock that is usable; 0 where none is.",
    do="Above 0.01: beacons of that node come late or not at all; lines of it are ordered by less.",
)  # fmt: skip
CLOCK_UNUSABLE: Final = Definition(
    name="rootrank_clock_unusable_nodes", kind="gauge",
    meaning="Live nodes whose clock is not measured, or of which nothing was told for 2 minutes within the last hour.",
    do="Above 0: /healthz names them; `rootrank clocks --bad` says why.",
)  # fmt: skip
CLOCK_WIDEST_WALL_OFFSET: Final = Definition(
    name="rootrank_clock_widest_wall_offset_seconds", kind="gauge",
    meaning="How far the wall clock of a live node is off from the brokers' at most, either way; 0: none is known.",
    do="Above 1: the order of lines does not suffer, NTP there is in trouble: `rootrank clocks --bad` says which node.",
)  # fmt: skip
CLOCK_WALL_STEPS: Final = Definition(
    name="rootrank_clock_wall_steps_total", kind="counter",
    meaning="Jumps of wall clocks of live nodes that the feed has seen as they happened.",
    do="Any rise: `rootrank query clock_steps` says where and how far; look at the time daemon there.",
)  # fmt: skip

WORKER_METRICS: Final = (STAGE_MESSAGES, STAGE_OUTPUTS, STAGE_SNAPSHOTS, STAGE_RESETS, DEAD_LETTERS, UNVERIFIED)
STORE_METRICS: Final = (STORE_ROWS, DEAD_LETTERS, UNVERIFIED)
FEED_METRICS: Final = (
    INCIDENTS, EVENT_TO_INCIDENT, CONSUMER_LAG, DEAD_LETTERS, FEED_INCIDENTS, FEED_STREAMS, FEED_STREAMS_REFUSED,
    CLOCK_NODES, CLOCK_WIDEST_BOUND, CLOCK_WIDEST_WALL_OFFSET, CLOCK_UNUSABLE, CLOCK_WALL_STEPS,
)  # fmt: skip
DEFINITIONS: Final[tuple[Definition, ...]] = tuple(
    dict.fromkeys((BUILD_INFO, *WORKER_METRICS, *STORE_METRICS, *FEED_METRICS))
)


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The metrics of the feed, in a registry of its own (so that tests and processes never share numbers)."""

    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=True))
    build_info: Gauge = field(init=False)
    incidents: Counter = field(init=False)
    event_to_incident: Histogram = field(init=False)
    consumer_lag: Gauge = field(init=False)
    dead_letters: Counter = field(init=False)
    feed_incidents: Gauge = field(init=False)
    feed_streams: Gauge = field(init=False)
    feed_streams_refused: Counter = field(init=False)
    clock_nodes: Gauge = field(init=False)
    clock_widest_bound: Gauge = field(init=False)
    clock_widest_wall_offset: Gauge = field(init=False)
    clock_unusable: Gauge = field(init=False)
    clock_wall_steps: Counter = field(init=False)

    def __post_init__(self) -> None:
        """Register every definition under its field."""
        registry = self.registry
        for name, metric in {
            "build_info": _gauge(BUILD_INFO, registry),
            "incidents": _counter(INCIDENTS, registry),
            "event_to_incident": _histogram(EVENT_TO_INCIDENT, registry),
            "consumer_lag": _gauge(CONSUMER_LAG, registry),
            "dead_letters": _counter(DEAD_LETTERS, registry),
            "feed_incidents": _gauge(FEED_INCIDENTS, registry),
            "feed_streams": _gauge(FEED_STREAMS, registry),
            "feed_streams_refused": _counter(FEED_STREAMS_REFUSED, registry),
            "clock_nodes": _gauge(CLOCK_NODES, registry),
            "clock_widest_bound": _gauge(CLOCK_WIDEST_BOUND, registry),
            "clock_widest_wall_offset": _gauge(CLOCK_WIDEST_WALL_OFFSET, registry),
            "clock_unusable": _gauge(CLOCK_UNUSABLE, registry),
            "clock_wall_steps": _counter(CLOCK_WALL_STEPS, registry),
        }.items():
            object.__setattr__(self, name, metric)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _counter(definition: Definition, registry: CollectorRegistry) -> Counter:
    return Counter(definition.name, definition.meaning, definition.labels, registry=registry)


def _gauge(definition: Definition, registry: CollectorRegistry) -> Gauge:
    return Gauge(definition.name, definition.meaning, definition.labels, registry=registry)


def _histogram(definition: Definition, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        definition.name, definition.meaning, definition.labels, registry=registry, buckets=_LATENCY_BUCKETS
    )


class Readings(Collector):
    """Counters that a process keeps anyway, read when somebody asks. `read` gives (definition, label value, number)."""

    def __init__(self, read: Callable[[], Iterable[tuple[Definition, str, float]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """One family per definition, and the build."""
        families: dict[str, CounterMetricFamily] = {}
        for definition, label, number in self._read():
            family = families.setdefault(
                definition.name, CounterMetricFamily(definition.name, definition.meaning, labels=definition.labels)
            )
            family.add_metric([label], number)
        yield from families.values()
        build = GaugeMetricFamily(BUILD_INFO.name, BUILD_INFO.meaning, labels=BUILD_INFO.labels)
        build.add_metric([VERSION, load_rules().digest], 1)
        yield build


def serve(readings: Readings, port: int, host: str = "127.0.0.1") -> None:
    """Serve readings at /metrics from a thread of this process. Raises OSError where the port is taken."""
    registry = CollectorRegistry()
    registry.register(readings)
    start_http_server(port, addr=host, registry=registry)


def metrics_page() -> str:
    """The page docs/metrics.md. `python -m pipeline.metrics > docs/metrics.md` writes it."""
    rows = (
        f"| `{d.name}` | {d.kind} | {', '.join(f'`{label}`' for label in d.labels)} | {d.meaning} | {d.do} |"
        for d in DEFINITIONS
    )
    return "\n".join(
        [
            "# Metrics",
            "",
            "In Prometheus' text format at `/metrics`: of the feed always, of `rootrank worker` and `rootrank store`",
            "with `--metrics-port`. Labels are bounded: no job, host or incident is ever one.",
            "Made by `python -m pipeline.metrics`.",
            "",
            "| name | kind | labels | meaning | what to do when it moves |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    print(metrics_page(), end="")
