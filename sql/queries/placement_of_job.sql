-- question: Where did each rank of a job run?
-- param job:String | the job's id
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query placement_of_job --param job=48211
SELECT
    attempt, rank, node, local_rank, pci_bus_id, gpu_index, gpu_uuid, pid, world_size,
    nullIf(placement.started_at, toDateTime64(0, 9, 'UTC')) AS started_at, ended_at, owner,
    scheduler, source, run, run_id
FROM placement
WHERE job_id = {job:String} AND ({run:String} = '' OR run = {run:String})
ORDER BY run, run_id, attempt, rank, node, started_at NULLS LAST
