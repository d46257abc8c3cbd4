-- What people read of the fleet. Of every table here there are two views: `NAME` as it stands now and
-- `NAME_as_of(as_of = '2026-03-31 00:00:00')` as it stood then. Both come from the same rows, so a report that was
-- issued then can be made again now.
--
-- Spans: of a file that was imported several times the newest import known then; what is streamed has generation 0.
-- A row that was streamed again (an end was learned) stands as it was told last; what a report needs of the past stands
-- in the days that were built then.
CREATE OR REPLACE VIEW fleet_spans_as_of AS
SELECT * EXCEPT (version)
FROM fleet_spans_rows FINAL
WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
    AND (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM fleet_spans_rows
        WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
        GROUP BY run, run_id, cluster, source
    )
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW fleet_spans AS SELECT * FROM fleet_spans_as_of(as_of = '2299-01-01 00:00:00');

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

CREATE OR REPLACE VIEW data_quality_as_of AS
SELECT *
FROM data_quality_rows
WHERE build IN (SELECT build FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')}));

CREATE OR REPLACE VIEW data_quality AS SELECT * FROM data_quality_as_of(as_of = '2299-01-01 00:00:00');
