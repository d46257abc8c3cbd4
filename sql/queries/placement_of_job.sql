-- question: Where did each rank of a job run?
-- param job:String | the job's id
-- param run:String = live | live, replay or drill; empty: all
-- param run_id:String = | only this run; empty: of several replays or drills the newest
-- example: rootrank query placement_of_job --param job=48211
WITH newest AS
(
    SELECT run, argMax(run_id, (heard_at, run_id)) AS run_id
    FROM (SELECT DISTINCT run, run_id FROM placement WHERE job_id = {job:String} AND run != 'live') AS held
    LEFT JOIN runs_heard USING (run, run_id)
    GROUP BY run
)
SELECT
    attempt, rank, node, local_rank, pci_bus_id, gpu_index, gpu_uuid, pid, world_size,
    nullIf(placement.started_at, toDateTime64(0, 9, 'UTC')) AS started_at, ended_at, owner,
    scheduler, source, run, run_id
FROM placement
WHERE job_id = {job:String} AND ({run:String} = '' OR run = {run:String})
    AND if({run_id:String} != '', run_id = {run_id:String}, run = 'live' OR (run, run_id) IN newest)
ORDER BY run, run_id, attempt, rank, node, started_at NULLS LAST
