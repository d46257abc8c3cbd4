-- An import counts once all of it is written: its last row, of the kind `imported`, says so. Until then, and for ever if
-- it was killed, what its source told before stands. A file that tells of no job attempts any more leaves none of them.
INSERT INTO fleet_spans_rows (run, run_id, cluster, source, generation, row, kind, started_at, known_at, version)
SELECT DISTINCT run, run_id, cluster, source, generation, 0, 'imported', known_at, known_at, version
FROM
(
    SELECT run, run_id, cluster, source, generation, known_at, version FROM fleet_spans_rows
    UNION ALL
    SELECT run, run_id, cluster, source, generation, known_at, version FROM job_attempts_rows
)
WHERE generation > 0;

-- What is streamed has no imports: it is told again row by row, as migration 0012 says.
CREATE OR REPLACE VIEW fleet_spans_as_of AS
SELECT
    * EXCEPT (version)
    REPLACE (if(known_at <= {as_of:DateTime64(3, 'UTC')}, ended_at, NULL) AS ended_at,
        if(known_at <= {as_of:DateTime64(3, 'UTC')}, outcome, '') AS outcome)
FROM fleet_spans_rows FINAL
WHERE kind != 'imported' AND
(
    (generation = 0
        AND least(known_at, toDateTime64(started_at, 3, 'UTC')) <= {as_of:DateTime64(3, 'UTC')})
    OR (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM fleet_spans_rows
        WHERE kind = 'imported' AND known_at <= {as_of:DateTime64(3, 'UTC')}
        GROUP BY run, run_id, cluster, source
    )
)
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW job_attempts_as_of AS
SELECT * EXCEPT (version)
FROM job_attempts_rows FINAL
WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
    AND (generation = 0 OR (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM fleet_spans_rows
        WHERE kind = 'imported' AND known_at <= {as_of:DateTime64(3, 'UTC')}
        GROUP BY run, run_id, cluster, source
    ))
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Kept since they were built and not since the day that they are of: a replay of last year's lines, and what a file tells
-- of years ago, would be gone at once.
ALTER TABLE exposure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE episode_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE failure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE data_quality_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));
