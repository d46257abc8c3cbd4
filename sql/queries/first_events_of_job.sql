-- question: What happened first to a job, on any of its nodes?
-- param job:String | the job's id, or its key
-- param run:String = live | live, replay or drill; empty: all
-- param run_id:String = | only this run; empty: of several replays or drills the newest
-- param role:String = | cause, intermediate, symptom, context or noise; empty: all
-- param limit:UInt32 = 50 | how many
-- example: rootrank query first_events_of_job --param job=48211 --param role=cause
WITH
    newest AS
    (
        SELECT run, argMax(run_id, (heard_at, run_id)) AS run_id
        FROM
        (
            SELECT DISTINCT run, run_id
            FROM event_jobs
            WHERE (job_id = {job:String} OR job_key = {job:String}) AND run != 'live'
        ) AS held
        LEFT JOIN runs_heard USING (run, run_id)
        GROUP BY run
    )
SELECT
    nullIf(ifNull(e.aligned_time, e.lo_time), toDateTime64(0, 9, 'UTC')) AS at,
    if(e.quality = 'none', NULL, toUnixTimestamp64Nano(e.hi_time) - toUnixTimestamp64Nano(e.lo_time)) AS width_ns,
    e.node AS node, e.subject_rank AS rank, e.name AS name, e.role AS role, e.label AS label, e.severity AS severity,
    e.count AS count, j.attempt AS attempt, e.source AS source, e.line_no AS line_no, e.body AS body,
    e.run AS run, e.run_id AS run_id
FROM events AS e
INNER JOIN event_jobs AS j USING (run, run_id, cluster, event_id)
WHERE (j.job_id = {job:String} OR j.job_key = {job:String})
    AND ({run:String} = '' OR run = {run:String})
    AND if({run_id:String} != '', run_id = {run_id:String}, run = 'live' OR (run, run_id) IN newest)
    AND ({role:String} = '' OR e.role = {role:String})
ORDER BY at ASC NULLS LAST, e.source, e.offset
LIMIT {limit:UInt32}
