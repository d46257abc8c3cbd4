-- Whose days can be built.
SELECT DISTINCT run_id, cluster
FROM
(
    SELECT run, run_id, cluster FROM fleet_spans
    UNION ALL
    SELECT run, run_id, cluster FROM incidents
    UNION ALL
    SELECT run, run_id, cluster FROM shippers
)
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
ORDER BY run_id, cluster
