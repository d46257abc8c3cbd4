-- What could not be used, with its address. Not partitioned by time: a worker that reads a message again
-- reports it again, possibly on another day.
CREATE TABLE IF NOT EXISTS dead_letters_rows
(
    topic LowCardinality(String),
    partition UInt32,
    offset UInt64,
    reason String,
    data_hash UInt64 COMMENT 'sipHash64 of data',
    key Nullable(String),
    data String CODEC(ZSTD(1)) COMMENT 'base64',
    observed_time DateTime64(9, 'UTC'),
    reported_at DateTime64(3, 'UTC') COMMENT 'Kafka time stamp of the dead letter',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (topic, partition, offset, reason, data_hash)
TTL stored_at + toIntervalDay(90);

CREATE VIEW IF NOT EXISTS dead_letters AS
SELECT * EXCEPT (version, stored_at, data_hash), tryBase64Decode(data) AS data_bytes
FROM dead_letters_rows FINAL;

-- What was lost or could not be read, where and why. One row per gap, however often it is told.
CREATE TABLE IF NOT EXISTS gaps_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    shipper_id LowCardinality(String),
    batch_seq UInt64,
    source String,
    reason String,
    node String COMMENT 'the reporter where nothing else is said',
    from_offset Nullable(UInt64),
    to_offset Nullable(UInt64),
    lost_lines Nullable(UInt64),
    lost_bytes Nullable(UInt64),
    reported_at DateTime64(3, 'UTC') COMMENT 'Kafka time stamp of the batch',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (run, run_id, cluster, reporter, source, reason, node, shipper_id, batch_seq,
    ifNull(from_offset, 0), ifNull(to_offset, 0))
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

CREATE VIEW IF NOT EXISTS gaps AS SELECT * EXCEPT (version, stored_at) FROM gaps_rows FINAL;

CREATE VIEW IF NOT EXISTS gaps_live AS SELECT * FROM gaps WHERE run = 'live';

-- How far each source has been read, as last told.
CREATE TABLE IF NOT EXISTS progress_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    source String COMMENT 'empty: the reporter itself',
    shipper_id LowCardinality(String),
    boot_id LowCardinality(String),
    machine_id LowCardinality(String),
    kind LowCardinality(String),
    state LowCardinality(String),
    reason String,
    read_through DateTime64(9, 'UTC') COMMENT 'wall clock of the node',
    backlog_bytes UInt64,
    at_end Bool,
    ended Bool,
    last_batch_seq UInt64,
    spool_backlog_bytes UInt64,
    node_time DateTime64(9, 'UTC') COMMENT 'wall clock of the node when it told',
    reported_at DateTime64(3, 'UTC') COMMENT 'Kafka time stamp',
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (run, run_id, cluster, reporter, source)
TTL stored_at + toIntervalDay(if(run = 'live', 90, 14));

CREATE VIEW IF NOT EXISTS progress AS SELECT * EXCEPT (version, stored_at) FROM progress_rows FINAL;

CREATE VIEW IF NOT EXISTS progress_live AS SELECT * FROM progress WHERE run = 'live';

-- Which shippers spoke under a reporter's name, from when to when. min and max do not mind a block sent again.
CREATE TABLE IF NOT EXISTS shippers_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    shipper_id String,
    first_seen SimpleAggregateFunction(min, DateTime64(3, 'UTC')),
    last_seen SimpleAggregateFunction(max, DateTime64(3, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (run, run_id, cluster, reporter, shipper_id)
TTL toDateTime(last_seen) + toIntervalDay(400);

CREATE VIEW IF NOT EXISTS shippers AS
SELECT
    run, run_id, cluster, reporter, shipper_id,
    min(shippers_rows.first_seen) AS first_seen,
    max(shippers_rows.last_seen) AS last_seen
FROM shippers_rows
GROUP BY run, run_id, cluster, reporter, shipper_id;

-- Two shippers alive under one reporter: their times overlap by more than two seconds.
CREATE VIEW IF NOT EXISTS shipper_conflicts AS
SELECT
    run, run_id, cluster, reporter,
    a.shipper_id AS shipper_id,
    b.shipper_id AS other_shipper_id,
    greatest(a.first_seen, b.first_seen) AS overlap_from,
    least(a.last_seen, b.last_seen) AS overlap_to
FROM shippers AS a
INNER JOIN shippers AS b USING (run, run_id, cluster, reporter)
WHERE a.shipper_id < b.shipper_id AND overlap_to > overlap_from + toIntervalSecond(2);

-- How far the sink has stored each Kafka partition. topic_id: a topic deleted and created again starts anew.
CREATE TABLE IF NOT EXISTS sink_offsets
(
    sink LowCardinality(String),
    topic LowCardinality(String),
    topic_id String,
    partition UInt32,
    offset UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(offset)
ORDER BY (sink, topic, topic_id, partition);
