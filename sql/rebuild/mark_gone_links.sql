-- Links of such events, and of events that were made again, that were not made again. Jobs that reach beyond the days
-- keep theirs: what began before was not read.
INSERT INTO rebuild_event_jobs_rows
SELECT * REPLACE (true AS is_gone, {version:UInt64} AS version)
FROM
(
    SELECT * FROM event_jobs_rows FINAL
    WHERE run = 'live' AND day = {day:Date} AND ({cluster:String} = '' OR cluster = {cluster:String}) AND NOT is_gone
        AND (cluster, job_key) NOT IN (SELECT cluster, job_key FROM rebuild_cut_jobs)
        AND (run_id, cluster, event_id) IN
            (SELECT run_id, cluster, event_id FROM rebuild_events_rows WHERE day = {day:Date})
        AND (run_id, cluster, job_key, event_id) NOT IN
            (SELECT run_id, cluster, job_key, event_id FROM rebuild_event_jobs_rows WHERE day = {day:Date} AND NOT is_gone)
)
