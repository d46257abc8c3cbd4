-- Every revision of every incident: the columns people filter by, and the whole record as JSON text.
CREATE TABLE IF NOT EXISTS incident_revisions_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    incident_id String,
    revision UInt32,
    schema_version UInt16,
    engine_version LowCardinality(String),
    rules_digest LowCardinality(String),
    synthetic Bool,
    verdict LowCardinality(String),
    state LowCardinality(String),
    superseded_by Nullable(String),
    severity LowCardinality(String),
    class LowCardinality(String),
    domain LowCardinality(String) COMMENT 'the part of class before the slash',
    xid Nullable(UInt32),
    sxid Nullable(UInt32),
    labels Array(LowCardinality(String)),
    job_ids Array(String),
    job_attempts Array(UInt32),
    job_owners Array(String) COMMENT 'empty text where not known',
    world_size Nullable(UInt32) COMMENT 'of the largest job',
    started_at Nullable(DateTime64(9, 'UTC')),
    started_error_ns Nullable(UInt64),
    detected_at Nullable(DateTime64(9, 'UTC')),
    detected_error_ns Nullable(UInt64),
    ended_at Nullable(DateTime64(9, 'UTC')),
    ended_error_ns Nullable(UInt64),
    stall_started_at Nullable(DateTime64(9, 'UTC')),
    stall_started_error_ns Nullable(UInt64),
    culprit_nodes Array(String),
    culprit_ranks Array(Int32),
    culprit_gpus Array(String) COMMENT 'PCI bus id, else UUID, else NVML index',
    why_unknown Nullable(String),
    confidence Float64,
    phase LowCardinality(String),
    interruption LowCardinality(String),
    ranks_hit Nullable(UInt32),
    nodes_hit Nullable(UInt32),
    first_failing_rank Nullable(Int32),
    silent_ranks Array(Int32),
    reporting_ranks UInt32,
    suppressed_lines UInt64,
    explanation String,
    action_kind LowCardinality(String),
    action_target String,
    action_why String,
    action_reference String,
    last_checkpoint Nullable(String),
    checkpoint_at Nullable(DateTime64(9, 'UTC')),
    lost_gpu_hours Nullable(Float64),
    resume_from Nullable(String),
    not_network_because Nullable(String),
    full_coverage Bool COMMENT 'every expected node was seen and none was silent, for every source kind',
    gap_count UInt32,
    incident String CODEC(ZSTD(3)) COMMENT 'the whole record as JSON',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, incident_id, revision)
TTL stored_at + toIntervalDay(if(run = 'live', 1825, 14));

CREATE VIEW IF NOT EXISTS incident_revisions AS
SELECT * EXCEPT (version, stored_at)
FROM incident_revisions_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW IF NOT EXISTS incidents AS
SELECT *
FROM incident_revisions
ORDER BY revision DESC
LIMIT 1 BY run, run_id, cluster, incident_id;

CREATE VIEW IF NOT EXISTS incidents_live AS SELECT * FROM incidents WHERE run = 'live';

CREATE TABLE IF NOT EXISTS chain_steps_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    incident_id String,
    revision UInt32,
    step UInt32,
    event LowCardinality(String),
    role LowCardinality(String),
    label LowCardinality(String),
    place String COMMENT 'the step''s `where`',
    at Nullable(DateTime64(9, 'UTC')) COMMENT 'the step''s `when`',
    error_ns Nullable(UInt64),
    lag_ns Nullable(Int64) COMMENT 'from the root',
    count UInt64,
    ranks Array(Int32),
    evidence_source String,
    evidence_line_no Nullable(UInt64),
    evidence_offset Nullable(UInt64),
    evidence_text String CODEC(ZSTD(1)),
    after_steps Array(UInt32) COMMENT 'edges that end here: from which step',
    after_why Array(String),
    after_order Array(LowCardinality(String)),
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, incident_id, revision, step)
TTL stored_at + toIntervalDay(if(run = 'live', 1825, 14));

-- Chains of the latest revisions; the rows of older ones stay in chain_steps_rows.
CREATE VIEW IF NOT EXISTS chain_steps AS
SELECT * EXCEPT (version, stored_at)
FROM chain_steps_rows FINAL
WHERE (run, run_id, cluster, incident_id, revision) IN
    (SELECT run, run_id, cluster, incident_id, max(revision) FROM incident_revisions_rows GROUP BY ALL)
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE TABLE IF NOT EXISTS culprits_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    incident_id String,
    revision UInt32,
    place UInt32 COMMENT '1 is the first named',
    class LowCardinality(String),
    xid Nullable(UInt32),
    node Nullable(String),
    machine_id Nullable(String),
    gpu_uuid Nullable(String),
    serial Nullable(String),
    pci_bus_id Nullable(String),
    gpu_index Nullable(Int32),
    nic Nullable(String),
    link Nullable(String),
    switch Nullable(String),
    nvlink_domain Nullable(String),
    rank Nullable(Int32),
    local_rank Nullable(Int32),
    pid Nullable(Int64),
    process_group Nullable(String),
    confidence Float64,
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, incident_id, revision, place)
TTL stored_at + toIntervalDay(if(run = 'live', 1825, 14));

CREATE VIEW IF NOT EXISTS culprits AS
SELECT * EXCEPT (version, stored_at)
FROM culprits_rows FINAL
WHERE (run, run_id, cluster, incident_id, revision) IN
    (SELECT run, run_id, cluster, incident_id, max(revision) FROM incident_revisions_rows GROUP BY ALL)
SETTINGS do_not_merge_across_partitions_select_final = 1;
