ALTER TABLE fleet_spans_rows DELETE WHERE kind = 'imported' SETTINGS mutations_sync = 1;

CREATE OR REPLACE VIEW fleet_spans_as_of AS
SELECT
    * EXCEPT (version)
    REPLACE (if(known_at <= {as_of:DateTime64(3, 'UTC')}, ended_at, NULL) AS ended_at,
        if(known_at <= {as_of:DateTime64(3, 'UTC')}, outcome, '') AS outcome)
FROM fleet_spans_rows FINAL
WHERE
    (
        known_at <= {as_of:DateTime64(3, 'UTC')}
        OR (generation = 0 AND toDateTime64(started_at, 3, 'UTC') <= {as_of:DateTime64(3, 'UTC')})
    )
    AND (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM fleet_spans_rows
        WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
            OR (generation = 0 AND toDateTime64(started_at, 3, 'UTC') <= {as_of:DateTime64(3, 'UTC')})
        GROUP BY run, run_id, cluster, source
    )
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW job_attempts_as_of AS
SELECT * EXCEPT (version)
FROM job_attempts_rows FINAL
WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
    AND (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM job_attempts_rows
        WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
        GROUP BY run, run_id, cluster, source
    )
SETTINGS do_not_merge_across_partitions_select_final = 1;

ALTER TABLE exposure_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE episode_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE failure_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE data_quality_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
