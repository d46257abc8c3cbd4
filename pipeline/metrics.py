"""Every metric, declared once: name, kind, what it means, what to do when it moves. `docs/metrics.md` is made from it.

Labels are bounded (source, stage, reason, topic, table): never a job, host or incident.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
RAW_LINES: Final = Definition(
    name="rootrank_raw_lines_total", kind="counter", labels=("source",),
    meaning="Lines read from the raw topic, by kind of source (kernel, application, service).",
    do="Flat at zero while jobs run: look at the shippers (`rootrank-shipper check`).",
)  # fmt: skip
EVENTS: Final = Definition(
    name="rootrank_events_total", kind="counter", labels=("source",),
    meaning="Events recognised in raw lines, by kind of source.",
    do="A sudden rise is a storm: read the newest incident. Zero with lines coming in: the signal files do not fit.",
)  # fmt: skip
DEAD_LETTERS: Final = Definition(
    name="rootrank_dead_letters_total", kind="counter", labels=("stage", "reason"),
    meaning="Messages or lines that could not be used. Each is kept with its address on the topic dead.letter.",
    do="Any rise: `rootrank sql \"SELECT * FROM dead_letters ORDER BY observed_time DESC LIMIT 20\"`.",
)  # fmt: skip
VERDICT_REVISIONS: Final = Definition(
    name="rootrank_verdict_revisions_total", kind="counter", labels=("verdict",),
    meaning="Revisions of verdicts that were published, provisional or settled.",
    do="Many provisional ones for few incidents: evidence comes late, look at consumer lag and shipper backlog.",
)  # fmt: skip
INCIDENTS: Final = Definition(
    name="rootrank_incidents_total", kind="counter", labels=("domain", "run"),
    meaning="Incidents opened, by domain of the class and by run.",
    do="Read them: `rootrank incidents`.",
)  # fmt: skip
WATERMARK_AGE: Final = Definition(
    name="rootrank_watermark_age_seconds", kind="gauge", labels=("stage",),
    meaning="How far the slowest watermark of this worker is behind the clock.",
    do="Above 60 s: a shipper is silent or far behind; incidents name it under coverage.",
)  # fmt: skip
CONSUMER_LAG: Final = Definition(
    name="rootrank_consumer_lag_messages", kind="gauge", labels=("topic",),
    meaning="Messages that wait to be read, by topic.",
    do="Rising for minutes: add a worker, up to the number of partitions.",
)  # fmt: skip
EVENT_TO_INCIDENT: Final = Definition(
    name="rootrank_event_to_incident_seconds", kind="histogram",
    meaning="From the root line being observed on its node to the first revision that shows it.",
    do="p99 above 5 s: compare with consumer lag (we are slow) and watermark age (a node is slow).",
)  # fmt: skip
STORE_ROWS: Final = Definition(
    name="rootrank_store_rows_total", kind="counter", labels=("table",),
    meaning="Rows written to ClickHouse, by table.",
    do="Flat while events rise: ClickHouse is away; nothing is lost, the rows wait in Kafka.",
)  # fmt: skip
STORE_RETRIES: Final = Definition(
    name="rootrank_store_retries_total", kind="counter",
    meaning="Writes to ClickHouse that had to be repeated.",
    do="Steady rise: look at the ClickHouse log; batches may be too small or its disk full.",
)  # fmt: skip
CLOCK_ERROR: Final = Definition(
    name="rootrank_clock_error_seconds", kind="gauge", labels=("quality",),
    meaning="Largest half-width of the time bounds of any node, by clock quality.",
    do="Above 0.1 s: NTP or PTP is broken on a node; `rootrank clocks` names it.",
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

DEFINITIONS: Final[tuple[Definition, ...]] = (
    BUILD_INFO, RAW_LINES, EVENTS, DEAD_LETTERS, VERDICT_REVISIONS, INCIDENTS, WATERMARK_AGE, CONSUMER_LAG,
    EVENT_TO_INCIDENT, STORE_ROWS, STORE_RETRIES, CLOCK_ERROR, FEED_INCIDENTS, FEED_STREAMS, FEED_STREAMS_REFUSED,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The metrics of one process, in a registry of its own (so that tests and processes never share numbers)."""

    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=True))
    build_info: Gauge = field(init=False)
    raw_lines: Counter = field(init=False)
    events: Counter = field(init=False)
    dead_letters: Counter = field(init=False)
    verdict_revisions: Counter = field(init=False)
    incidents: Counter = field(init=False)
    watermark_age: Gauge = field(init=False)
    consumer_lag: Gauge = field(init=False)
    event_to_incident: Histogram = field(init=False)
    store_rows: Counter = field(init=False)
    store_retries: Counter = field(init=False)
    clock_error: Gauge = field(init=False)
    feed_incidents: Gauge = field(init=False)
    feed_streams: Gauge = field(init=False)
    feed_streams_refused: Counter = field(init=False)

    def __post_init__(self) -> None:
        """Register every definition under its field."""
        registry = self.registry
        for name, metric in {
            "build_info": _gauge(BUILD_INFO, registry),
            "raw_lines": _counter(RAW_LINES, registry),
            "events": _counter(EVENTS, registry),
            "dead_letters": _counter(DEAD_LETTERS, registry),
            "verdict_revisions": _counter(VERDICT_REVISIONS, registry),
            "incidents": _counter(INCIDENTS, registry),
            "watermark_age": _gauge(WATERMARK_AGE, registry),
            "consumer_lag": _gauge(CONSUMER_LAG, registry),
            "event_to_incident": _histogram(EVENT_TO_INCIDENT, registry),
            "store_rows": _counter(STORE_ROWS, registry),
            "store_retries": _counter(STORE_RETRIES, registry),
            "clock_error": _gauge(CLOCK_ERROR, registry),
            "feed_incidents": _gauge(FEED_INCIDENTS, registry),
            "feed_streams": _gauge(FEED_STREAMS, registry),
            "feed_streams_refused": _counter(FEED_STREAMS_REFUSED, registry),
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
            "Each process serves these in Prometheus' text format at `/metrics`. Made by `python -m pipeline.metrics`.",
            "Labels are bounded: no job, host or incident is ever one.",
            "",
            "| name | kind | labels | meaning | what to do when it moves |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    print(metrics_page(), end="")
