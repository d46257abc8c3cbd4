-- question: Which nodes report in the cluster of a job, which of them spoke of the job, and how far is each source read?
-- param job:String | the job's id, or its key
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query nodes_of_job --param job=48211
WITH mine AS
(
    SELECT run, run_id, cluster, reporter, groupUniqArray(64)(attempt) AS attempts
    FROM event_jobs
    WHERE (job_id = {job:String} OR job_key = {job:String}) AND ({run:String} = '' OR run = {run:String})
    GROUP BY run, run_id, cluster, reporter
)
SELECT
    p.cluster AS cluster, p.reporter AS node, arraySort(any(mine.attempts)) AS attempts,
    groupUniqArrayIf(64)(p.kind, p.source != '' AND p.state = 'on') AS kinds_read,
    groupUniqArrayIf(64)(concat(p.source, ': ', p.reason), p.source != '' AND p.state = 'refused') AS refused,
    nullIf(minIf(p.read_through, p.source != '' AND p.state = 'on'), toDateTime64(0, 9, 'UTC')) AS read_through,
    max(p.reported_at) AS reported_at, max(p.ended) AS ended, p.run AS run, p.run_id AS run_id
FROM progress AS p
LEFT JOIN mine USING (run, run_id, cluster, reporter)
WHERE (p.run, p.run_id, p.cluster) IN (SELECT run, run_id, cluster FROM mine)
GROUP BY run, run_id, cluster, node
ORDER BY run, run_id, cluster, node
LIMIT 20000
