-- question: What in the data cannot be true or could not be counted, on which unit, and where does it stand written?
-- param from:String = | first UTC day, such as 2026-03-01; empty: 28 days ago
-- param to:String = | last UTC day; empty: today
-- param kind:String = | only this kind
-- param cluster:String = | only this cluster
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 1000 | how many
-- example: rootrank query data_quality --param kind=gpu_in_two_nodes
SELECT
    kind, cluster, unit, argMin(detail, (day, detail)) AS detail, source, row, at, uniqExact(day) AS days, min(day) AS first_day, max(day) AS last_day,
    run_id
FROM data_quality
WHERE run = {run:String} AND ({kind:String} = '' OR kind = {kind:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day BETWEEN if({from:String} = '', today() - 28, toDate(parseDateTime({from:String}, '%Y-%m-%d', 'UTC')))
        AND if({to:String} = '', today(), toDate(parseDateTime({to:String}, '%Y-%m-%d', 'UTC')))
GROUP BY run_id, kind, cluster, unit, source, row, at
ORDER BY kind, cluster, unit, source, row, at
LIMIT {limit:UInt32}
