-- question: Which attempts of a job are known, on which nodes, and when were they first and last heard of?
-- param job:String | the job's id, or its key
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query attempts_of_job --param job=48211
WITH
    mine AS
    (
        SELECT run, run_id, cluster, event_id, attempt, job_id, reporter
        FROM event_jobs
        WHERE (job_id = {job:String} OR job_key = {job:String}) AND ({run:String} = '' OR run = {run:String})
    ),
    -- What was old at first sight makes no incident.
    old AS
    (
        SELECT run, run_id, cluster, event_id
        FROM old_events
        WHERE event_id IN (SELECT event_id FROM mine)
    )
SELECT
    e.cluster AS cluster, mine.attempt AS attempt, any(mine.job_id) AS job_id, sum(e.count) AS lines,
    sumIf(e.count, e.severity_number >= 17) AS error_lines,
    sumIf(e.count, (e.run, e.run_id, e.cluster, e.event_id) IN old) AS old_lines,
    uniqExact(mine.reporter) AS nodes,
    arraySort(groupUniqArray(4096)(mine.reporter)) AS node_names,
    nullIf(minIf(e.aligned_time, e.quality != 'none'), toDateTime64(0, 9, 'UTC')) AS first_at,
    nullIf(maxIf(e.aligned_time, e.quality != 'none'), toDateTime64(0, 9, 'UTC')) AS last_at,
    e.run AS run, e.run_id AS run_id
FROM events AS e
INNER JOIN mine USING (run, run_id, cluster, event_id)
WHERE e.event_id IN (SELECT event_id FROM mine)
GROUP BY run, run_id, cluster, attempt
ORDER BY run, run_id, cluster, attempt
