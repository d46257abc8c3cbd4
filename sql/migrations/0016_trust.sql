-- Lines that failed the check of their signature. A table of their own: no query that counts evidence can count them by
-- accident, and none of them can replace a line that is proven. One row per line of a message, by its address in Kafka.
CREATE TABLE IF NOT EXISTS unverified_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    partition UInt32,
    offset UInt64,
    line UInt32,
    verified LowCardinality(String),
    counted Bool,
    record LowCardinality(String),
    key_id String,
    shipper_id String,
    batch_seq UInt64,
    source String,
    source_offset UInt64,
    line_no Nullable(UInt64),
    node String,
    Body String CODEC(ZSTD(1)),
    ObservedTimestamp DateTime64(9, 'UTC'),
    reported_at DateTime64(3, 'UTC'),
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, reporter, partition, offset, line)
TTL stored_at + toIntervalDay(if(run = 'live', 30, 7));

CREATE TABLE IF NOT EXISTS releases_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    partition UInt32,
    offset UInt64,
    who String,
    why String,
    lines UInt64,
    key_id String,
    released_at DateTime64(9, 'UTC'),
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY run
ORDER BY (run, run_id, cluster, reporter, partition, offset)
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

CREATE VIEW IF NOT EXISTS releases AS
SELECT run, run_id, cluster, reporter, partition, offset, who, why, lines, key_id, released_at
FROM releases_rows FINAL;

CREATE VIEW IF NOT EXISTS unverified AS
SELECT
    failed.run AS run, failed.run_id AS run_id, failed.cluster AS cluster, failed.reporter AS reporter,
    failed.partition AS partition, failed.offset AS offset, failed.line AS line, failed.verified AS verified,
    failed.counted AS counted, failed.record AS record, failed.key_id AS key_id, failed.shipper_id AS shipper_id,
    failed.batch_seq AS batch_seq, failed.source AS source, failed.source_offset AS source_offset,
    failed.line_no AS line_no, failed.node AS node, failed.Body AS Body,
    failed.ObservedTimestamp AS ObservedTimestamp, failed.reported_at AS reported_at,
    released.who AS released_by, released.why AS released_why
FROM (SELECT * FROM unverified_rows FINAL) AS failed
LEFT JOIN releases AS released USING (run, run_id, cluster, reporter, partition, offset);

ALTER TABLE unverified MODIFY COMMENT 'A line whose signature failed its check: kept, and left out of everything else. 30 days.';

ALTER TABLE unverified
    COMMENT COLUMN reporter 'the machine in whose name it was sent',
    COMMENT COLUMN partition 'of the topic raw, where its message stands',
    COMMENT COLUMN offset 'of that message',
    COMMENT COLUMN line 'its place in the message, from 1; 0: the message is no batch with lines',
    COMMENT COLUMN verified 'no, and why',
    COMMENT COLUMN counted 'it counts all the same, as the policy is warn',
    COMMENT COLUMN record 'raw_batch, progress (the last one) or release',
    COMMENT COLUMN key_id 'the key that it names; anybody may write that',
    COMMENT COLUMN source_offset 'where it says it begins in its source',
    COMMENT COLUMN reported_at 'when the message reached Kafka',
    COMMENT COLUMN released_by 'who let it count later; empty: nobody',
    COMMENT COLUMN released_why 'and why';

ALTER TABLE releases MODIFY COMMENT 'A message whose lines a person let count although its check failed. 400 days.';

ALTER TABLE releases
    COMMENT COLUMN partition 'of the topic raw, where the message stands',
    COMMENT COLUMN offset 'of that message',
    COMMENT COLUMN who 'who let its lines count',
    COMMENT COLUMN why 'and why',
    COMMENT COLUMN lines 'how many',
    COMMENT COLUMN key_id 'the key of the operator that signed it',
    COMMENT COLUMN released_at 'when, by the clock of the operator';
