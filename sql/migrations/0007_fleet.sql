-- What fleet statistics are made of. Spans as they were told; per day what follows from them; corrections by people.
--
-- A span is told by a source: a file that was imported, or an agent. A file imported again is a new generation that
-- stands for the whole file; what an agent streams has generation 0 and replaces row by row. Older generations stay, so
-- that a report can be made again as of the day it was issued.
CREATE TABLE IF NOT EXISTS fleet_spans_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    source String COMMENT 'file or agent that told it',
    generation UInt64 COMMENT 'when the file was imported, Unix time in ms; 0: streamed',
    row UInt64 COMMENT 'line of the file, or number of the record',
    unit_kind LowCardinality(String) COMMENT 'gpu or node',
    unit String COMMENT 'GPU UUID or serial; machine id or name of the node',
    kind LowCardinality(String) COMMENT 'installed, facts, drain, repair, maintenance, upgrade, boot, reset, busy, observed',
    started_at DateTime64(9, 'UTC'),
    ended_at Nullable(DateTime64(9, 'UTC')) COMMENT 'empty: still',
    node String COMMENT 'the machine that a GPU sits in',
    facts Map(LowCardinality(String), String) COMMENT 'sku, rack, position, driver, firmware, batch',
    job_id String,
    attempt UInt32,
    action LowCardinality(String) COMMENT 'of a repair: reset, reboot, reseat, swap, none_found',
    outcome String,
    ticket String,
    known_at DateTime64(3, 'UTC') COMMENT 'when it was told',
    version UInt64,
    INDEX units unit TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX nodes node TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, source, generation, row)
TTL toDateTime(known_at) + toIntervalDay(if(run = 'live', 1825, 14));

-- Job attempts as schedulers tell them, with generations as above.
CREATE TABLE IF NOT EXISTS job_attempts_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    source String,
    generation UInt64,
    row UInt64,
    job_id String,
    attempt UInt32,
    nodes Array(String),
    gpus Nullable(UInt32),
    started_at DateTime64(9, 'UTC'),
    ended_at Nullable(DateTime64(9, 'UTC')),
    end_state LowCardinality(String) COMMENT 'running, completed, failed, node_failure, cancelled, preempted, timed_out, unknown',
    queued_ns Nullable(UInt64),
    owner LowCardinality(String),
    known_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, source, generation, row)
TTL toDateTime(known_at) + toIntervalDay(if(run = 'live', 1825, 14));

-- What a person knows better than the engine. The latest of an incident stands; the incident itself is never changed.
CREATE TABLE IF NOT EXISTS incident_corrections_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    incident_id String,
    corrected_at DateTime64(3, 'UTC'),
    class LowCardinality(String) COMMENT 'empty: as it was',
    unit_kind LowCardinality(String),
    unit String COMMENT 'empty: as it was',
    node String,
    is_failure Bool COMMENT 'false: not to be counted',
    why String,
    corrected_by String
)
ENGINE = ReplacingMergeTree
PARTITION BY run
ORDER BY (run, run_id, cluster, incident_id, corrected_at)
TTL toDateTime(corrected_at) + toIntervalDay(if(run = 'live', 1825, 14));

-- Per day and built whole: a build of a day stands for the day, the newest one counts. Older ones are what older
-- reports were made of. Days are kept from when they were built, as their builds are: counted from the day, what is
-- built of a replay of older logs, or of what a file tells of years ago, would be gone at once. `why` is read by the table of restatements.
CREATE TABLE IF NOT EXISTS fleet_builds_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    day Date,
    built_at DateTime64(3, 'UTC'),
    engine_version LowCardinality(String),
    rules_digest LowCardinality(String),
    why String COMMENT 'late data, correction, import, rebuild'
)
ENGINE = ReplacingMergeTree
PARTITION BY run
ORDER BY (run, run_id, cluster, day, built_at)
TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

-- The tables of days are written once per build and never again, so they need no FINAL, which would have to read every
-- key: a block that is sent again because its answer got lost is dropped by the window of the last blocks. `build` says
-- in one number which build a row is of, `unit_id` which unit of which cluster: sums over ten million rows are told by
-- numbers in a third of the time that the names take.
--
-- Time at risk of a unit on a day in a cohort. Cohort columns come before the unit: rates by cohort read few granules.
CREATE TABLE IF NOT EXISTS exposure_days_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    day Date,
    built_at DateTime64(3, 'UTC'),
    unit_kind LowCardinality(String),
    sku LowCardinality(String),
    driver LowCardinality(String),
    rack LowCardinality(String),
    position LowCardinality(String),
    firmware LowCardinality(String),
    batch LowCardinality(String),
    unit String CODEC(ZSTD(1)),
    node LowCardinality(String),
    installed_ns UInt64 CODEC(ZSTD(1)),
    in_service_ns UInt64 CODEC(ZSTD(1)),
    busy_ns UInt64 CODEC(ZSTD(1)),
    observed_ns UInt64 CODEC(ZSTD(1)),
    build UInt64 MATERIALIZED cityHash64(run, run_id, cluster, day, built_at),
    unit_id UInt64 MATERIALIZED cityHash64(cluster, unit)
)
ENGINE = MergeTree
PARTITION BY (run, toYYYYMM(day))
ORDER BY (run, run_id, cluster, day, built_at, unit_kind, sku, driver, rack, position, firmware, batch, unit, node)
TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14))
SETTINGS non_replicated_deduplication_window = 1000;

-- Episodes of a kind of event on a unit on a day; `episodes` by the window of its class, `by_window` by others (s).
CREATE TABLE IF NOT EXISTS episode_days_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    day Date,
    built_at DateTime64(3, 'UTC'),
    unit_kind LowCardinality(String),
    name LowCardinality(String),
    xid Nullable(UInt32),
    sku LowCardinality(String),
    driver LowCardinality(String),
    rack LowCardinality(String),
    position LowCardinality(String),
    firmware LowCardinality(String),
    batch LowCardinality(String),
    unit String CODEC(ZSTD(1)),
    node LowCardinality(String),
    lines UInt64,
    episodes UInt32,
    by_window Map(UInt32, UInt32),
    build UInt64 MATERIALIZED cityHash64(run, run_id, cluster, day, built_at),
    unit_id UInt64 MATERIALIZED cityHash64(cluster, unit),
    INDEX units unit TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY (run, toYYYYMM(day))
ORDER BY (run, run_id, cluster, day, built_at, unit_kind, name, ifNull(xid, 0), sku, driver, rack, position, firmware,
    batch, unit, node)
TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14))
SETTINGS non_replicated_deduplication_window = 1000;

-- Incidents that count as failures, on the unit that they are blamed on, in the cohort that it then belonged to.
CREATE TABLE IF NOT EXISTS failure_days_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    day Date,
    built_at DateTime64(3, 'UTC'),
    incident_id String,
    at DateTime64(9, 'UTC'),
    class LowCardinality(String),
    category LowCardinality(String) COMMENT 'infrastructure, planned, user_code, unknown',
    component LowCardinality(String),
    unit_kind LowCardinality(String),
    unit String COMMENT 'empty: blamed on nobody',
    node String,
    sku LowCardinality(String),
    driver LowCardinality(String),
    rack LowCardinality(String),
    position LowCardinality(String),
    firmware LowCardinality(String),
    batch LowCardinality(String),
    job_ids Array(String),
    job_gpus Nullable(UInt32),
    lost_gpu_hours Nullable(Float64),
    corrected_by String,
    build UInt64 MATERIALIZED cityHash64(run, run_id, cluster, day, built_at),
    unit_id UInt64 MATERIALIZED cityHash64(cluster, unit)
)
ENGINE = MergeTree
PARTITION BY run
ORDER BY (run, run_id, cluster, day, built_at, incident_id)
TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14))
SETTINGS non_replicated_deduplication_window = 1000;

-- Data that cannot be true or cannot be counted. Nothing is dropped or counted silently.
CREATE TABLE IF NOT EXISTS data_quality_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    day Date COMMENT 'of the build that found it',
    built_at DateTime64(3, 'UTC'),
    kind LowCardinality(String),
    unit String,
    detail String,
    source String,
    row UInt64,
    at Nullable(DateTime64(9, 'UTC')),
    build UInt64 MATERIALIZED cityHash64(run, run_id, cluster, day, built_at)
)
ENGINE = MergeTree
PARTITION BY run
ORDER BY (run, run_id, cluster, day, built_at, kind, unit, source, row, detail)
TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14))
SETTINGS non_replicated_deduplication_window = 1000;
