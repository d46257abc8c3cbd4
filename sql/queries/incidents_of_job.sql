-- question: Which incidents name a job, over all its attempts?
-- param job:String | the job's id
-- param run:String = live | live, replay or drill; empty: all
-- param limit:UInt32 = 200 | how many, newest first
-- example: rootrank query incidents_of_job --param job=48211
SELECT
    incident_id, started_at, state, verdict, class, culprit_nodes, culprit_ranks, round(confidence, 2) AS confidence,
    job_ids, job_attempts, explanation, revision, cluster, run, run_id, incident
FROM incidents
WHERE has(job_ids, {job:String}) AND ({run:String} = '' OR run = {run:String})
ORDER BY started_at DESC NULLS LAST, incident_id
LIMIT {limit:UInt32}
