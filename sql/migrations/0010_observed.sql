-- In which minutes an agent was heard of. A bit for each minute of an hour: what is told again changes nothing, and an
-- hour of a node is one row however often its agent speaks.
CREATE TABLE IF NOT EXISTS observed_minutes_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    hour DateTime('UTC'),
    minutes SimpleAggregateFunction(groupBitOr, UInt64) COMMENT 'bit 0: the first minute of the hour'
)
ENGINE = AggregatingMergeTree
PARTITION BY (run, toYYYYMM(hour))
ORDER BY (run, run_id, cluster, hour, reporter)
TTL hour + toIntervalDay(if(run = 'live', 400, 14));

-- The same as spans: minutes that follow each other in an hour are one.
CREATE OR REPLACE VIEW observed AS
SELECT
    run, run_id, cluster, reporter, hour,
    hour + 60 * stretch[1] AS started_at,
    hour + 60 * (stretch[-1] + 1) AS ended_at
FROM
(
    SELECT run, run_id, cluster, reporter, hour, groupBitOr(observed_minutes_rows.minutes) AS minutes
    FROM observed_minutes_rows
    GROUP BY run, run_id, cluster, reporter, hour
)
ARRAY JOIN arraySplit(
    (minute) -> minute = 0 OR NOT bitTest(minutes, greatest(minute, 1) - 1),
    arrayFilter((minute) -> bitTest(minutes, minute), range(60))
) AS stretch;
