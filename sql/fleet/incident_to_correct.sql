-- The incidents of this id and the UTC day that each counts on.
SELECT run, run_id, cluster, toDate(assumeNotNull(ifNull(started_at, detected_at)), 'UTC') AS day
FROM incidents
WHERE incident_id = {incident:String} AND run = {run:String}
    AND ({cluster:String} = '' OR cluster = {cluster:String})
ORDER BY run_id, cluster
