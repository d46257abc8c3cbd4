-- Job attempts that ran on the days [first, last], as of a moment.
SELECT
    cluster, job_id, attempt, nodes, gpus, toUnixTimestamp64Nano(started_at) AS from_ns,
    toUnixTimestamp64Nano(ended_at) AS to_ns, end_state, queued_ns, owner, source, row
FROM job_attempts_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND started_at < toDateTime64({last:Date} + 1, 9, 'UTC')
    AND (ended_at IS NULL OR ended_at > toDateTime64({first:Date}, 9, 'UTC'))
ORDER BY cluster, job_id, attempt, source, row
