-- Incidents that stand and lie on no day that can be built: without a time, before 2000, or after the moment of the build.
SELECT
    i.incident_id AS incident_id, ifNull(b.node, '') AS blamed_node,
    toUnixTimestamp64Nano(ifNull(i.started_at, i.detected_at)) AS at_ns
FROM incidents AS i
LEFT JOIN corrections AS c USING (run, run_id, cluster, incident_id)
LEFT JOIN (SELECT * FROM culprits WHERE place = 1) AS b USING (run, run_id, cluster, incident_id)
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND i.state IN {standing:Array(String)}
    AND (c.incident_id = '' OR c.is_failure)
    AND (at_ns IS NULL OR at_ns < {first_ns:Int64} OR at_ns > {now_ns:Int64})
ORDER BY incident_id
SETTINGS join_use_nulls = 0
