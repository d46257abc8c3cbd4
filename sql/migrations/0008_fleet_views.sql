-- What people read of the fleet. Of every table here there are two views: `NAME` as it stands now and
-- `NAME_as_of(as_of = '2026-03-31 00:00:00')` as it stood then. Both come from the same rows, so a report that was
-- issued then can be made again now.
--
-- Spans: of a file that was imported several times the newest import known then. An import counts once all of it is
-- written: its last row, of the kind `imported`, says so. Until then, and for ever if it was killed, what its source told
-- before stands. A file that tells of no job attempts any more leaves none of them.
--
-- What is streamed has generation 0. It is told when it begins and again when it ends, and the later row replaces the
-- earlier one. As of a moment before its end was told it was open; when its begin was told is no longer known, and taken
-- to be when it began.
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

CREATE OR REPLACE VIEW fleet_spans AS SELECT * FROM fleet_spans_as_of(as_of = '2299-01-01 00:00:00');

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

CREATE OR REPLACE VIEW job_attempts AS SELECT * FROM job_attempts_as_of(as_of = '2299-01-01 00:00:00');

-- The last word of a person on an incident.
CREATE OR REPLACE VIEW corrections_as_of AS
SELECT *
FROM incident_corrections_rows FINAL
WHERE corrected_at <= {as_of:DateTime64(3, 'UTC')}
ORDER BY corrected_at DESC
LIMIT 1 BY run, run_id, cluster, incident_id
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW corrections AS SELECT * FROM corrections_as_of(as_of = '2299-01-01 00:00:00');

-- Which build of a day counts. The row of a build is written last: a build that was cut off counts for nothing.
CREATE OR REPLACE VIEW fleet_builds AS
SELECT * FROM fleet_builds_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW standing_builds_as_of AS
SELECT
    run, run_id, cluster, day, max(fleet_builds_rows.built_at) AS built_at,
    cityHash64(run, run_id, cluster, day, built_at) AS build
FROM fleet_builds_rows
WHERE fleet_builds_rows.built_at <= {as_of:DateTime64(3, 'UTC')}
GROUP BY run, run_id, cluster, day;

CREATE OR REPLACE VIEW standing_builds AS SELECT * FROM standing_builds_as_of(as_of = '2299-01-01 00:00:00');

CREATE OR REPLACE VIEW exposure_days_as_of AS
SELECT *, unit_id
FROM exposure_days_rows
WHERE build IN (SELECT build FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')}));

CREATE OR REPLACE VIEW exposure_days AS SELECT * FROM exposure_days_as_of(as_of = '2299-01-01 00:00:00');

CREATE OR REPLACE VIEW episode_days_as_of AS
SELECT *, unit_id
FROM episode_days_rows
WHERE build IN (SELECT build FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')}));

CREATE OR REPLACE VIEW episode_days AS SELECT * FROM episode_days_as_of(as_of = '2299-01-01 00:00:00');

CREATE OR REPLACE VIEW failure_days_as_of AS
SELECT *, unit_id
FROM failure_days_rows
WHERE build IN (SELECT build FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')}));

CREATE OR REPLACE VIEW failure_days AS SELECT * FROM failure_days_as_of(as_of = '2299-01-01 00:00:00');

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

CREATE OR REPLACE VIEW data_quality AS SELECT * FROM data_quality_as_of(as_of = '2299-01-01 00:00:00');
