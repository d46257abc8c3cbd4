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
    if(h.quality = 'none', NULL, greatest(h.hi_ns, -greatest(h.lo_ns, -9223372036854775807))) AS bound_ns,
    if(h.quality = 'none', NULL, h.lo_ns) AS lo_ns, if(h.quality = 'none', NULL, h.hi_ns) AS hi_ns,
    if(h.quality = 'none', NULL, h.u99_ns) AS u99_ns, if(h.quality = 'none', NULL, h.b_ppb) AS b_ppb,
    if(h.broker_id < 0, NULL, h.broker_id) AS reference_broker, h.epoch AS epoch, h.boot_id AS boot_id, h.reason AS reason,
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
    ADD COLUMN IF NOT EXISTS monotonic_raw_width_ns UInt64 CODEC(ZSTD(1))
        COMMENT 'it was then or up to so much later' AFTER monotonic_raw_ns;

CREATE OR REPLACE VIEW events AS
SELECT * EXCEPT (version, stored_at)
FROM events_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW events_live AS SELECT * FROM events WHERE run = 'live';

-- Every event with its time and bounds by the segments that hold at both ends of its raw time: of the broker it was
-- aligned with, and where it was not, of the one whose segment began last (of equal ones the lowest number). Where none
-- holds the stored values stand; so they do where both are certain and cannot both be (a line of an earlier boot that
-- was read in this one). All in whole ns, quotients rounded down.
CREATE OR REPLACE VIEW events_aligned AS
WITH
    segments AS
    (
        SELECT
            run, run_id, cluster, node, boot_id, broker_id, t_from_raw_ns, t_to_raw_ns, epoch, toInt128(a_ns) AS a,
            toInt128(b_ppb) AS b, lo_ns, hi_ns, u99_ns, indexOf(['good', 'holdover', 'stepped'], quality) AS badness
        FROM clock_segments
        WHERE quality != 'none' AND broker_id >= 0
    ),
    followed AS
    (
        SELECT
            *, 1 AS found, arrayJoin([broker_id, -2]) AS by_broker,
            toInt128(t_from_raw_ns) * 4294967296 + (2147483647 - toInt64(broker_id)) AS by_raw
        FROM
        (
            SELECT
                *,
                leadInFrame((t_from_raw_ns, t_to_raw_ns, epoch, a, b, lo_ns, hi_ns, u99_ns, badness)) OVER
                (
                    PARTITION BY run, run_id, cluster, node, boot_id, broker_id ORDER BY t_from_raw_ns
                    ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING
                ) AS next
            FROM segments
        )
    ),
    joined AS
    (
        SELECT
            e.*, s.found AS found, s.broker_id AS s_broker,
            (s.t_from_raw_ns, s.t_to_raw_ns, s.epoch, s.a, s.b, s.lo_ns, s.hi_ns, s.u99_ns, s.badness) AS first,
            if(e.raw_to < s.t_to_raw_ns, first, s.next) AS last,
            if(e.raw_middle < s.t_to_raw_ns, first, s.next) AS middle
        FROM
        (
            SELECT
                *, ifNull(reference_broker, -2) AS by_broker,
                toInt128(ifNull(monotonic_raw_ns, -9223372036854775808)) AS raw_from,
                raw_from + monotonic_raw_width_ns AS raw_to,
                raw_from + intDiv(monotonic_raw_width_ns, 2) AS raw_middle,
                raw_from * 4294967296 + 4294967295 AS by_raw
            FROM events
        ) AS e
        ASOF LEFT JOIN followed AS s
        ON e.run = s.run AND e.run_id = s.run_id AND e.cluster = s.cluster AND e.reporter = s.node
            AND e.boot_id = s.boot_id AND e.by_broker = s.by_broker AND e.by_raw >= s.by_raw
    ),
    placed AS
    (
        SELECT
            *,
            first.5 * (raw_from - first.1) AS first_gain, last.5 * (raw_to - last.1) AS last_gain,
            middle.5 * (raw_middle - middle.1) AS middle_gain,
            first.4 + intDiv(first_gain - if(first_gain < 0, 999999999, 0), 1000000000) AS first_offset,
            last.4 + intDiv(last_gain - if(last_gain < 0, 999999999, 0), 1000000000) AS last_offset,
            middle.4 + intDiv(middle_gain - if(middle_gain < 0, 999999999, 0), 1000000000) AS middle_offset,
            raw_from + least(first_offset + first.6, last_offset + last.6) AS lo,
            raw_to + greatest(first_offset + first.7, last_offset + last.7) AS hi,
            least(greatest(raw_middle + middle_offset, lo), hi) AS best,
            monotonic_raw_ns IS NOT NULL AND found = 1 AND raw_from < first.2 AND raw_to >= last.1 AND raw_to < last.2
                AND raw_middle >= middle.1 AND (reference_broker IS NULL
                OR (lo <= toUnixTimestamp64Nano(hi_time) AND hi >= toUnixTimestamp64Nano(lo_time))) AS realigned
        FROM joined
    )
SELECT
    run, run_id, cluster, reporter, event_id, day, name, node, boot_id, source, line_no, severity, label, role,
    subject_node, subject_rank, subject_pci_bus_id, count, body, monotonic_raw_ns, monotonic_raw_width_ns,
    realigned,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(best, 0), 9223372036854775807)), 'UTC'),
        t.aligned_time) AS aligned_time,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(lo, 0), 9223372036854775807)), 'UTC'),
        t.lo_time) AS lo_time,
    if(realigned, fromUnixTimestamp64Nano(toInt64(least(greatest(hi, 0), 9223372036854775807)), 'UTC'),
        t.hi_time) AS hi_time,
    if(realigned, middle.8 + intDiv(monotonic_raw_width_ns, 2), t.u99_ns) AS u99_ns,
    if(realigned, ['good', 'holdover', 'stepped'][greatest(first.9, last.9)], t.quality) AS quality,
    if(realigned, last.3, t.clock_epoch) AS clock_epoch,
    if(realigned, s_broker, t.reference_broker) AS reference_broker,
    t.aligned_time AS stored_aligned_time, t.lo_time AS stored_lo_time, t.hi_time AS stored_hi_time,
    t.quality AS stored_quality
FROM placed AS t
SETTINGS join_algorithm = 'full_sorting_merge', join_use_nulls = 0;

CREATE OR REPLACE VIEW events_aligned_live AS SELECT * FROM events_aligned WHERE run = 'live';
