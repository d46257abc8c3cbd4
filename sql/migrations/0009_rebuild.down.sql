DROP VIEW IF EXISTS rebuilds;
DROP TABLE IF EXISTS rebuilds_rows;
-- Before the marks go, what they hide.
ALTER TABLE events_rows DELETE WHERE is_gone;
ALTER TABLE event_jobs_rows DELETE WHERE is_gone;
CREATE OR REPLACE VIEW event_jobs AS
SELECT * EXCEPT (version, stored_at, is_gone)
FROM event_jobs_rows FINAL
WHERE (run, run_id, cluster, job_key) NOT IN (SELECT run, run_id, cluster, alias FROM job_aliases)
SETTINGS do_not_merge_across_partitions_select_final = 1;
CREATE OR REPLACE VIEW events AS
SELECT * EXCEPT (version, stored_at, is_gone)
FROM events_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;
