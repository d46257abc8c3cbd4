-- question: How far did each attempt of a job get, and how did it end? The last marks of progress, endings and errors.
-- param job:String | the job's id, or its key
-- param run:String = live | live, replay or drill; empty: all
-- param each:UInt32 = 5 | how many of each kind and attempt
-- example: rootrank query marks_of_job --param job=48211
WITH mine AS
(
    SELECT run, run_id, cluster, event_id, attempt
    FROM event_jobs
    WHERE (job_id = {job:String} OR job_key = {job:String}) AND ({run:String} = '' OR run = {run:String})
),
    e.label IN ('resource/time_limit', 'resource/preemption', 'resource/eviction') OR e.name IN (
        'train.end', 'elastic.succeeded', 'slurm.job_end', 'slurm.job_state', 'slurm.cancelled', 'slurm.cancel_reason',
        'launcher.done', 'job.failed', 'job.not_requeued'
    ) AS is_ending
SELECT
    e.cluster AS cluster, mine.attempt AS attempt,
    multiIf(is_ending, 'ending', e.label = 'context/progress', 'progress', 'error') AS kind,
    nullIf(ifNull(e.aligned_time, e.lo_time), toDateTime64(0, 9, 'UTC')) AS at,
    e.node AS node, e.subject_rank AS rank, e.name AS name, e.source AS source, e.line_no AS line_no, e.body AS body,
    e.run AS run, e.run_id AS run_id
FROM events AS e
INNER JOIN mine USING (run, run_id, cluster, event_id)
WHERE e.event_id IN (SELECT event_id FROM mine)
    AND (is_ending OR e.label = 'context/progress' OR (e.severity_number >= 17 AND e.role != 'noise'))
ORDER BY run, run_id, cluster, attempt, kind, at DESC NULLS LAST, source, e.offset DESC
LIMIT {each:UInt32} BY run, run_id, cluster, attempt, kind
