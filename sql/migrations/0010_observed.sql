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

-- Of a file that was imported several times, what the last import known then could not use. Every import leaves a row
-- of the kind `imported`, so that one without a defect stands for those before it.
CREATE OR REPLACE VIEW data_quality_as_of AS
SELECT *
FROM data_quality_rows
WHERE kind != 'imported' AND
(
    build IN (SELECT build FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')}))
    OR (run, run_id, cluster, source, built_at) IN
    (
        SELECT run, run_id, cluster, source, max(data_quality_rows.built_at)
        FROM data_quality_rows
        WHERE kind = 'imported' AND data_quality_rows.built_at <= {as_of:DateTime64(3, 'UTC')}
        GROUP BY run, run_id, cluster, source
    )
);
