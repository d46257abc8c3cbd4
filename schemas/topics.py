"""Every topic, declared once: name, key, partitions, retention, compaction, timestamp type, records.

Partition counts are fixed when a topic is created; `raw`, `placement` and the align state are co-partitioned.
"""

from typing import Final, Literal

from msgspec import Struct

from schemas import records as r

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Topic(Struct, frozen=True, kw_only=True):
    """How a topic is created and what it carries. `partitions` 0 means: one per broker."""

    name: str
    key: str
    records: tuple[type, ...]
    partitions: int = 4
    retention_ms: int = 3 * DAY_MS
    cleanup: Literal["delete", "compact", "compact,delete"] = "delete"
    # The broker's clock: a node whose clock stands in 2099 is neither refused nor believed.
    timestamp: Literal["CreateTime", "LogAppendTime"] = "LogAppendTime"
    max_message_bytes: int = 8 * 1024 * 1024

    def settings(self) -> dict[str, str]:
        """Topic configuration as Kafka names it."""
        settings = {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            "message.timestamp.type": self.timestamp,
            "max.message.bytes": str(self.max_message_bytes),
        }
        if self.retention_ms < DAY_MS:
            # Kafka keeps the segment that it writes to whatever its age, by default for a week.
            settings["segment.ms"] = str(HOUR_MS)
        if "compact" in self.cleanup:
            # A sink that is rebuilt within a week still sees every revision.
            settings["min.compaction.lag.ms"] = str(7 * DAY_MS)
        return settings


RAW: Final = Topic(
    name="raw",
    key="cluster/reporter",
    records=(
        r.RawBatch,
        r.Progress,
        r.Release,
        r.NodeFacts,
        r.Topology,
        r.Annotation,
        r.Attempt,
        r.Span,
        r.Placement,
        r.Relay,
    ),
)
EVENTS: Final = Topic(
    name="events", key="job key", records=(r.EventBatch, r.NodeProgress, r.Placement, r.JobAlias), partitions=4
)
VERDICTS: Final = Topic(name="verdicts", key="job key", records=(r.Verdict,), partitions=1)
INCIDENTS: Final = Topic(
    name="incidents", key="incident_id", records=(r.Incident,), partitions=1, cleanup="compact,delete",
    retention_ms=90 * DAY_MS,
)  # fmt: skip
PLACEMENT: Final = Topic(name="placement", key="cluster/node", records=(r.Placement,), cleanup="compact")
CLOCK_BEACON: Final = Topic(
    name="clock.beacon", key="cluster/reporter", records=(r.ClockBeacon,), partitions=0, retention_ms=6 * HOUR_MS
)
CLOCK_SEGMENTS: Final = Topic(
    name="clock.segments", key="cluster/node/boot_id/broker", records=(r.ClockSegment,), retention_ms=7 * DAY_MS
)
DEAD_LETTER: Final = Topic(
    name="dead.letter", key="topic/partition/offset", records=(r.DeadLetter,), partitions=1, retention_ms=14 * DAY_MS
)
CAPTURE_REQUEST: Final = Topic(
    name="capture.request", key="cluster/node", records=(r.CaptureRequest,), partitions=1, retention_ms=HOUR_MS
)

TOPICS: Final[tuple[Topic, ...]] = (
    RAW, EVENTS, VERDICTS, INCIDENTS, PLACEMENT, CLOCK_BEACON, CLOCK_SEGMENTS, DEAD_LETTER, CAPTURE_REQUEST,
)  # fmt: skip
BY_NAME: Final[dict[str, Topic]] = {topic.name: topic for topic in TOPICS}


def run_prefix(run: str, run_id: str) -> str:
    """What keeps the keys of a replay or drill apart from live ones and from each other; empty for live."""
    return f"{run}:{run_id}/" if run in ("replay", "drill") else ""


def key_of(run: str, run_id: str, cluster: str, name: str) -> bytes:
    """The Kafka key of a reporter or node in UTF-8: `cluster/name`, behind its run where that is not live."""
    return f"{run_prefix(run, run_id)}{cluster}/{name}".encode()
