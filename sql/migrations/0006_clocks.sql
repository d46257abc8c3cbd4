-- Where the nodes' clocks stood against the brokers', so that what is learned late aligns what is stored already.
-- The key holds the node's raw clock of one boot: whatever is computed again of a span replaces the older row.
CREATE TABLE IF NOT EXISTS clock_segments_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String) COMMENT 'the machine that reports, as reporter in events',
    boot_id LowCardinality(String),
    broker_id Int32 COMMENT '-1: the clock is not measured, see reason',
    t_from_raw_ns Int64 CODEC(Delta(8), ZSTD(1)) COMMENT 'CLOCK_MONOTONIC_RAW; the segment holds from here',
    t_to_raw_ns Int64 CODEC(Delta(8), ZSTD(1)) COMMENT 'and to before here',
    epoch UInt32 COMMENT 'counts what broke the line: steps of the broker, a suspend',
    a_ns Int64 CODEC(ZSTD(1)) COMMENT 'reference = raw + a_ns + b_ppb * (raw - t_from_raw_ns) / 1e9',
    b_ppb Int64 CODEC(ZSTD(1)),
    lo_ns Int64 CODEC(ZSTD(1)) COMMENT 'the truth is certain to lie from lo_ns to hi_ns beside that',
    hi_ns Int64 CODEC(ZSTD(1)),
    u99_ns UInt64 CODEC(ZSTD(1)) COMMENT 'and in 99 of 100 cases within this',
    quality LowCardinality(String) COMMENT 'good, holdover, stepped or none',
    wall_offset_ns Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'reference minus wall clock, at the end',
    wall_step_ns Int64 CODEC(ZSTD(1)) COMMENT 'how far the wall clock jumped in the span, new minus old; 0: it did not',
    reason String CODEC(ZSTD(1)),
    reported_at DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'Kafka time stamp',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now(),
    INDEX steps wall_step_ns TYPE minmax GRANULARITY 1,
    INDEX reported reported_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, node, boot_id, broker_id, t_from_raw_ns)
TTL stored_at + toIntervalDay(if(run = 'live', 90, 14));

CREATE OR REPLACE VIEW clock_segments AS
SELECT
    * EXCEPT (version, stored_at),
    if(quality = 'none', NULL, fromUnixTimestamp64Nano(toInt64(
        least(greatest(toInt128(t_from_raw_ns) + a_ns, 0), 9223372036854775807)), 'UTC')) AS from_time,
    if(quality = 'none', NULL, fromUnixTimestamp64Nano(toInt64(least(greatest(toInt128(t_to_raw_ns) + a_ns
        + intDiv(toInt128(b_ppb) * (toInt128(t_to_raw_ns) - t_from_raw_ns), 1000000000),
        0), 9223372036854775807)), 'UTC')) AS to_time
FROM clock_segments_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW clock_segments_live AS SELECT * FROM clock_segments WHERE run = 'live';

-- The newest segment of each node and broker alone, because people ask for it all the time.
CREATE TABLE IF NOT EXISTS clocks_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String),
    broker_id Int32,
    boot_id LowCardinality(String),
    epoch UInt32,
    b_ppb Int64,
    lo_ns Int64,
    hi_ns Int64,
    u99_ns UInt64,
    quality LowCardinality(String),
    wall_offset_ns Nullable(Int64),
    reason String,
    reported_at DateTime64(3, 'UTC') COMMENT 'Kafka time stamp',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (run, run_id, cluster, node, broker_id)
TTL stored_at + toIntervalDay(if(run = 'live', 90, 14));

-- One row a node: of its brokers in its newest boot, as far as they were heard of in its last minute, the one with the
-- best quality, then the lowest number.
CREATE OR REPLACE VIEW clocks AS
WITH
    heard AS
    (
        SELECT
            *,
            max(reported_at) OVER node_rows AS last_heard,
            argMax(boot_id, version) OVER node_rows AS last_boot
        FROM clocks_rows FINAL
        WINDOW node_rows AS (PARTITION BY run, run_id, cluster, node)
    ),
    steps AS
    (
        SELECT
            run, run_id, cluster, node,
            argMax(wall_step_ns, (reported_at, t_from_raw_ns)) AS last_wall_step_ns,
            argMax(ifNull(to_time, toDateTime64(reported_at, 9, 'UTC')), (reported_at, t_from_raw_ns))
                AS last_wall_step_at
        FROM clock_segments
        WHERE wall_step_ns != 0
        GROUP BY run, run_id, cluster, node
    )
SELECT
    h.run AS run, h.run_id AS run_id, h.cluster AS cluster, h.node AS node,
    h.quality AS quality, h.wall_offset_ns AS wall_offset_ns,
    greatest(h.hi_ns, -greatest(h.lo_ns, -9223372036854775807)) AS bound_ns, h.lo_ns AS lo_ns, h.hi_ns AS hi_ns, h.u99_ns AS u99_ns,
    h.b_ppb AS b_ppb, h.broker_id AS reference_broker, h.epoch AS epoch, h.boot_id AS boot_id, h.reason AS reason,
    nullIf(s.last_wall_step_ns, 0) AS last_wall_step_ns,
    if(s.last_wall_step_ns = 0, NULL, s.last_wall_step_at) AS last_wall_step_at,
    h.reported_at AS reported_at, dateDiff('second', h.reported_at, now64(3)) AS age_s
FROM heard AS h
LEFT JOIN steps AS s USING (run, run_id, cluster, node)
WHERE h.boot_id = h.last_boot AND h.reported_at >= h.last_heard - toIntervalSecond(60)
ORDER BY indexOf(['good', 'holdover', 'stepped', 'none'], h.quality), h.broker_id
LIMIT 1 BY h.run, h.run_id, h.cluster, h.node;

CREATE OR REPLACE VIEW clocks_live AS SELECT * FROM clocks WHERE run = 'live';

-- What events need to be aligned again.
ALTER TABLE events_rows
    ADD COLUMN IF NOT EXISTS monotonic_raw_ns Nullable(Int64) CODEC(ZSTD(1))
        COMMENT 'CLOCK_MONOTONIC_RAW of the reporter in this boot; null: not known' AFTER raw_ns,
    ADD COLUMN IF NOT EXISTS resolution_ns UInt64 CODEC(ZSTD(1))
        COMMENT 'the line was written from raw_ns to so much later' AFTER monotonic_raw_ns;

CREATE OR REPLACE VIEW events AS
SELECT * EXCEPT (version, stored_at)
FROM events_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW events_live AS SELECT * FROM events WHERE run = 'live';

-- Every event with its time and bounds by the segment that holds at its raw time: of the broker it was aligned with, and
-- where it was not, of the one whose segment began last (of equal ones the lowest number). Where none holds, the stored
-- values stand. All in whole ns, rounded down; the line was written from the raw time to resolution_ns later.
CREATE OR REPLACE VIEW events_aligned AS
SELECT
    e.run AS run, e.run_id AS run_id, e.cluster AS cluster, e.reporter AS reporter, e.event_id AS event_id,
    e.day AS day, e.name AS name, e.node AS node, e.boot_id AS boot_id, e.source AS source, e.line_no AS line_no,
    e.severity AS severity, e.label AS label, e.role AS role, e.subject_rank AS subject_rank, e.body AS body,
    e.monotonic_raw_ns AS monotonic_raw_ns,
    ifNull(s.found = 1 AND e.monotonic_raw_ns < s.t_to_raw_ns, false) AS realigned,
    toInt128(e.monotonic_raw_ns) + s.a_ns + intDiv(
        toInt128(s.b_ppb) * (toInt128(e.monotonic_raw_ns) - s.t_from_raw_ns)
            - if((s.b_ppb < 0) != (e.monotonic_raw_ns < s.t_from_raw_ns), 999999999, 0), 1000000000) AS reference_ns,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(
        reference_ns, 0), 9223372036854775807)), 'UTC'), e.aligned_time) AS aligned_time,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(
        reference_ns + s.lo_ns, 0), 9223372036854775807)), 'UTC'), e.lo_time) AS lo_time,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(
        reference_ns + s.hi_ns + e.resolution_ns, 0), 9223372036854775807)), 'UTC'), e.hi_time) AS hi_time,
    if(realigned, s.u99_ns, e.u99_ns) AS u99_ns,
    if(realigned, s.quality, e.quality) AS quality,
    if(realigned, s.epoch, e.clock_epoch) AS clock_epoch,
    if(realigned, s.broker_id, e.reference_broker) AS reference_broker,
    e.aligned_time AS stored_aligned_time, e.lo_time AS stored_lo_time, e.hi_time AS stored_hi_time,
    e.quality AS stored_quality
FROM
(
    SELECT
        *, ifNull(reference_broker, -2) AS by_broker,
        toInt128(ifNull(monotonic_raw_ns, -9223372036854775808)) * 4294967296 + 4294967295 AS by_raw
    FROM events
) AS e
ASOF LEFT JOIN
(
    SELECT
        run, run_id, cluster, node, boot_id, broker_id, t_from_raw_ns, t_to_raw_ns, epoch, a_ns, b_ppb, lo_ns, hi_ns,
        u99_ns, quality, 1 AS found, arrayJoin([broker_id, -2]) AS by_broker,
        toInt128(t_from_raw_ns) * 4294967296 + (2147483647 - toInt64(broker_id)) AS by_raw
    FROM clock_segments
    WHERE quality != 'none' AND broker_id >= 0
) AS s
ON e.run = s.run AND e.run_id = s.run_id AND e.cluster = s.cluster AND e.reporter = s.node AND e.boot_id = s.boot_id
    AND e.by_broker = s.by_broker AND e.by_raw >= s.by_raw
SETTINGS join_algorithm = 'full_sorting_merge', join_use_nulls = 0;

CREATE OR REPLACE VIEW events_aligned_live AS SELECT * FROM events_aligned WHERE run = 'live';
