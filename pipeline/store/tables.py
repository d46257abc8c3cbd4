"""The tables the sink fills: names and columns in the order of `pipeline.store.rows`. Types are in sql/migrations."""

from typing import Final

from msgspec import Struct


class Table(Struct, frozen=True, kw_only=True):
    """A table and the columns of a row. `latest_by`: of rows equal in the first so many columns only the last counts,
    so one batch needs to carry only that one. `waited_for`: a person waits for these rows.
    """

    name: str
    columns: tuple[str, ...]
    latest_by: int = 0
    waited_for: bool = False


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RAW_LINES: Final = Table(
    name="raw_lines_rows",
    columns=_columns(
        "run run_id cluster reporter source generation offset day line_no seq batch_seq shipper_id boot_id machine_id "
        "node truncated kernel_time_ns Timestamp ObservedTimestamp SeverityText SeverityNumber ServiceName Body "
        "ResourceAttributes LogAttributes version"
    ),
)
SUBJECT: Final = _columns(
    "node machine_id gpu_uuid serial pci_bus_id gpu_index nic link switch nvlink_domain rank local_rank pid "
    "process_group"
)
EVENTS: Final = Table(
    name="events_rows",
    columns=(
        *_columns(
            "run run_id cluster reporter event_id day name node boot_id machine_id shipper_id batch_seq source "
            "generation offset line_no seq body clock_id raw_ns monotonic_raw_ns monotonic_raw_width_ns "
            "observed_time aligned_time lo_time hi_time u99_ns clock_epoch reference_broker quality severity "
            "severity_number label role scope"
        ),
        *(f"subject_{name}" for name in SUBJECT),
        *_columns("attributes count alerts version"),
    ),
)
EVENT_JOBS: Final = Table(
    name="event_jobs_rows",
    columns=_columns("run run_id cluster job_key event_id day job_id attempt reporter version"),
)
JOB_ALIASES: Final = Table(
    name="job_aliases_rows", columns=_columns("run run_id cluster alias job_key why version"), latest_by=4
)
INCIDENTS: Final = Table(
    name="incident_revisions_rows",
    columns=_columns(
        "run run_id cluster incident_id revision schema_version engine_version rules_digest synthetic verdict state "
        "superseded_by severity class domain xid sxid labels job_ids job_attempts job_owners world_size "
        "started_at started_error_ns detected_at detected_error_ns ended_at ended_error_ns stall_started_at "
        "stall_started_error_ns culprit_nodes culprit_ranks culprit_gpus why_unknown confidence phase interruption "
        "ranks_hit nodes_hit first_failing_rank silent_ranks reporting_ranks suppressed_lines explanation "
        "action_kind action_target action_why action_reference last_checkpoint checkpoint_at lost_gpu_hours "
        "resume_from not_network_because full_coverage gap_count incident version"
    ),
    waited_for=True,
)
CHAIN_STEPS: Final = Table(
    name="chain_steps_rows",
    columns=_columns(
        "run run_id cluster incident_id revision step event role label place at error_ns lag_ns count ranks "
        "evidence_source evidence_line_no evidence_offset evidence_text after_steps after_why after_order version"
    ),
)
CULPRITS: Final = Table(
    name="culprits_rows",
    columns=(
        *_columns("run run_id cluster incident_id revision place class xid"), *SUBJECT, *_columns("confidence version"),
    ),
)  # fmt: skip
DEAD_LETTERS: Final = Table(
    name="dead_letters_rows",
    columns=_columns("topic partition offset reason data_hash key data observed_time reported_at version"),
)
GAPS: Final = Table(
    name="gaps_rows",
    columns=_columns(
        "run run_id cluster reporter shipper_id batch_seq source reason node from_offset to_offset lost_lines "
        "lost_bytes reported_at version"
    ),
)
PROGRESS: Final = Table(
    name="progress_rows",
    columns=_columns(
        "run run_id cluster reporter source shipper_id boot_id machine_id kind state reason read_through backlog_bytes "
        "at_end ended last_batch_seq spool_backlog_bytes node_time reported_at version"
    ),
    latest_by=5,
)
SHIPPERS: Final = Table(
    name="shippers_rows", columns=_columns("run run_id cluster reporter shipper_id first_seen last_seen"), latest_by=5
)
OBSERVED_MINUTES: Final = Table(
    name="observed_minutes_rows", columns=_columns("run run_id cluster reporter hour minutes"), latest_by=6
)
FLEET_SPANS: Final = Table(
    name="fleet_spans_rows",
    columns=_columns(
        "run run_id cluster source generation row unit_kind unit kind started_at ended_at node facts job_id attempt "
        "action outcome ticket known_at version"
    ),
)
JOB_ATTEMPTS: Final = Table(
    name="job_attempts_rows",
    columns=_columns(
        "run run_id cluster source generation row job_id attempt nodes gpus started_at ended_at end_state queued_ns "
        "owner known_at version"
    ),
)
PLACEMENT: Final = Table(name="placement_rows", columns=_columns("run run_id cluster node spans version"), latest_by=4)
CLOCK_SEGMENTS: Final = Table(
    name="clock_segments_rows",
    columns=_columns(
        "run run_id cluster node boot_id broker_id t_from_raw_ns t_to_raw_ns epoch a_ns b_ppb lo_ns hi_ns u99_ns "
        "quality wall_offset_ns wall_step_ns reason reported_at version"
    ),
)
CLOCKS: Final = Table(
    name="clocks_rows",
    columns=_columns(
        "run run_id cluster node broker_id boot_id epoch b_ppb lo_ns hi_ns u99_ns quality wall_offset_ns reason "
        "reported_at version"
    ),
    latest_by=5,
)
UNVERIFIED: Final = Table(
    name="unverified_rows",
    columns=_columns(
        "run run_id cluster reporter partition offset line verified counted record key_id shipper_id batch_seq source "
        "source_offset line_no node Body ObservedTimestamp reported_at version"
    ),
)
RELEASES: Final = Table(
    name="releases_rows",
    columns=_columns("run run_id cluster reporter partition offset who why lines key_id released_at version"),
)
SINK_OFFSETS: Final = Table(name="sink_offsets", columns=_columns("sink topic topic_id partition offset"))

# In the order of writing: who sees an incident sees its chain.
TABLES: Final[tuple[Table, ...]] = (
    RAW_LINES, EVENTS, EVENT_JOBS, JOB_ALIASES, DEAD_LETTERS, GAPS, PROGRESS, SHIPPERS, OBSERVED_MINUTES,
    FLEET_SPANS, PLACEMENT, CLOCK_SEGMENTS, CLOCKS, UNVERIFIED, RELEASES, CHAIN_STEPS, CULPRITS, INCIDENTS,
)  # fmt: skip
BY_NAME: Final[dict[str, Table]] = {table.name: table for table in TABLES}
