-- Marks that jobs sent by themselves: they are no lines, so they are read again from what was made of them.
SELECT
    node, generation, toInt64(offset) AS at_ns, body, subject_rank, job_id, attempt, attributes
FROM events AS e
INNER JOIN event_jobs AS j USING (run, run_id, cluster, event_id)
WHERE run = 'live' AND e.day = {day:Date} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND e.reporter = {reporter:String} AND e.source = 'annotation'
ORDER BY at_ns, event_id
