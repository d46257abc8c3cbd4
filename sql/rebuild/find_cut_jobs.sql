-- Jobs with events before or after the days, or with events whose line is no longer kept.
INSERT INTO rebuild_cut_jobs
WITH touched AS
(
    SELECT DISTINCT cluster, job_key FROM event_jobs WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})
)
SELECT DISTINCT cluster, job_key
FROM event_jobs
WHERE run = 'live' AND (cluster, job_key) IN touched
    AND (
        day NOT BETWEEN {since:Date} AND {until:Date}
        OR (run_id, cluster, event_id) IN
        (
            SELECT run_id, cluster, event_id FROM events
            WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String}) AND source != 'annotation'
                AND (run_id, cluster, reporter, source, generation, offset) NOT IN
                    (SELECT run_id, cluster, reporter, source, generation, offset FROM raw_lines WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String}))
        )
    )
