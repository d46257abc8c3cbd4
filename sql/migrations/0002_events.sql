-- Each event once, without its job: an event on a node with two jobs counts once in every rate.
-- Aligned time, bounds, label and role are columns: they are refined later and then replace the older row.
-- The reporter stands in the key, not the node: the subject of a line may be learned late.
CREATE TABLE IF NOT EXISTS events_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    event_id String CODEC(ZSTD(1)),
    day Date COMMENT 'UTC day of observed_time; 1970-01-01 where no host clock may be used (replay) or it is absurd',
    name LowCardinality(String),
    node LowCardinality(String),
    boot_id LowCardinality(String),
    machine_id LowCardinality(String),
    shipper_id LowCardinality(String),
    batch_seq UInt64 CODEC(Delta(8), ZSTD(1)),
    source LowCardinality(String),
    generation LowCardinality(String),
    offset UInt64 CODEC(ZSTD(1)),
    line_no Nullable(UInt64) CODEC(ZSTD(1)),
    seq UInt64 CODEC(ZSTD(1)),
    body String CODEC(ZSTD(1)),
    clock_id LowCardinality(String),
    raw_ns Nullable(Int64) CODEC(ZSTD(1)),
    observed_time DateTime64(9, 'UTC') CODEC(ZSTD(1)),
    aligned_time Nullable(DateTime64(9, 'UTC')) CODEC(ZSTD(1)),
    lo_time DateTime64(9, 'UTC') CODEC(ZSTD(1)),
    hi_time DateTime64(9, 'UTC') CODEC(ZSTD(1)),
    u99_ns Nullable(UInt64),
    clock_epoch UInt32,
    reference_broker Nullable(Int32),
    quality LowCardinality(String),
    severity LowCardinality(String),
    severity_number UInt8 COMMENT 'OpenTelemetry SeverityNumber',
    label LowCardinality(String),
    role LowCardinality(String),
    scope LowCardinality(String),
    subject_node Nullable(String),
    subject_machine_id Nullable(String),
    subject_gpu_uuid Nullable(String),
    subject_serial Nullable(String),
    subject_pci_bus_id Nullable(String),
    subject_gpu_index Nullable(Int32),
    subject_nic Nullable(String),
    subject_link Nullable(String),
    subject_switch Nullable(String),
    subject_nvlink_domain Nullable(String),
    subject_rank Nullable(Int32),
    subject_local_rank Nullable(Int32),
    subject_pid Nullable(Int64),
    subject_process_group Nullable(String),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    count UInt64,
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now(),
    INDEX names name TYPE set(200) GRANULARITY 4,
    INDEX nodes node TYPE set(100) GRANULARITY 4,
    INDEX ids event_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX aligned aligned_time TYPE minmax GRANULARITY 1,
    INDEX body_tokens body TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
    INDEX attribute_values mapValues(attributes) TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (run, day)
ORDER BY (run, run_id, cluster, reporter, event_id)
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

CREATE VIEW IF NOT EXISTS events AS
SELECT * EXCEPT (version, stored_at)
FROM events_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW IF NOT EXISTS events_live AS SELECT * FROM events WHERE run = 'live';

-- Which jobs an event belongs to; as many rows as jobs on the node at that time.
CREATE TABLE IF NOT EXISTS event_jobs_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    job_key LowCardinality(String),
    event_id String CODEC(ZSTD(1)),
    day Date,
    job_id LowCardinality(String),
    attempt UInt32,
    reporter LowCardinality(String),
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now(),
    INDEX jobs job_id TYPE set(100) GRANULARITY 4
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (run, day)
ORDER BY (run, run_id, cluster, job_key, event_id)
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

-- Keys learned late to mean the same job attempt; the events were sent again under the canonical key.
CREATE TABLE IF NOT EXISTS job_aliases_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    alias String,
    job_key String,
    why String,
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (run, run_id, cluster, alias)
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

CREATE VIEW IF NOT EXISTS job_aliases AS
SELECT * EXCEPT (version, stored_at) FROM job_aliases_rows FINAL;

CREATE VIEW IF NOT EXISTS event_jobs AS
SELECT * EXCEPT (version, stored_at)
FROM event_jobs_rows FINAL
WHERE (run, run_id, cluster, job_key) NOT IN (SELECT run, run_id, cluster, alias FROM job_aliases)
SETTINGS do_not_merge_across_partitions_select_final = 1;
